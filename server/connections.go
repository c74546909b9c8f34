package server

import (
	"cmp"
	"container/list"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/server/identity"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

// Limits of connections over TCP.
const (
	// maxUnknown bounds the unauthenticated connections. Beyond it the oldest is closed. A client authenticates with
	// its first call.
	maxUnknown = 2048
	// unknownBytes is the data limit of such a connection, unknownTime its time limit.
	unknownBytes = 256 << 10
	unknownTime  = 30 * time.Second

	// introduceTime is how long a connection may take to authenticate before it is closed in preference to others.
	introduceTime = 2 * time.Second

	// minReserve and maxReserve bound the number of open files that connections leave for sessions, CLI processes,
	// reloads and the admin listener, which is a quarter of the process's limit.
	minReserve, maxReserve = 64, 1024
	// maxConnections bounds connections if the system sets no limit.
	maxConnections = 10_000

	// shedFlush is how long a client may take to read why its connection is closed; revokeFlush is that time for the
	// statuses of calls that end with the caller's rights.
	shedFlush, revokeFlush = 100 * time.Millisecond, time.Second
)

// connections are the connections over TCP: the unauthenticated ones, and the others by caller and tenant. It limits
// all of them. mu guards everything without another comment.
type connections struct {
	policy  *policy.Store // nil: no limits for callers
	log     *slog.Logger
	unknown int
	time    time.Duration
	// most bounds all connections. ceiling is the descriptor number from which each new connection closes another
	// one; 0 sets no limit.
	most, ceiling atomic.Int64
	// age is the maximum age of a connection, grace the time for its calls after it; in nanoseconds.
	age, grace atomic.Int64
	// bytes is the cost of requests of known callers.
	bytes atomic.Int64
	// trusted returns why the certificate of a proof is no longer trusted; nil without certificates.
	trusted func(identity.Proof) error

	// tasks are goroutines that close connections; stop makes them finish sooner.
	tasks sync.WaitGroup
	stop  chan struct{}

	mu      sync.Mutex
	stopped bool
	open    int
	ends    map[ends]*connection // nil without xDS
	queue   list.List            // of *connection: unauthenticated, the oldest first
	callers map[callerKey]*callerUse
	tenants map[string]*tenantUse
}

// callerKey identifies a caller of a tenant.
type callerKey struct{ tenant, source, name string }

// callerUse is the use by a caller; mu of connections guards conns.
type callerUse struct {
	key    callerKey  // immutable
	tenant *tenantUse // immutable
	// conns are its connections, the oldest first.
	conns []*connection
	bytes atomic.Int64
	// swept reports that the table does not have it any more.
	swept atomic.Bool
}

// tenantUse is the use by a tenant.
type tenantUse struct {
	conns int
	bytes atomic.Int64
}

func newConnections(c *Config) *connections {
	t := &connections{
		policy: c.Policy, log: c.Logger, unknown: cmp.Or(c.MaxStrangers, maxUnknown),
		time:    cmp.Or(c.StrangerTime, unknownTime),
		callers: map[callerKey]*callerUse{}, tenants: map[string]*tenantUse{}, stop: make(chan struct{}),
	}
	if c.XDS {
		t.ends = map[ends]*connection{}
	}
	t.tune(c.Connections)
	if t.policy != nil {
		t.policy.OnChange(func(p *policy.Policy) { t.check(p) })
	}
	return t
}

// tune sets new bounds. A new age applies to later connections.
func (t *connections) tune(c Connections) {
	most, ceiling := c.Max, 0
	if files := openFiles(); files > 0 {
		reserve := min(max(files/4, minReserve), maxReserve)
		ceiling = max(files-reserve, 1)
		most = min(cmp.Or(most, ceiling), ceiling)
	}
	t.most.Store(int64(cmp.Or(most, maxConnections)))
	t.ceiling.Store(int64(ceiling))
	t.age.Store(int64(c.MaxAge))
	t.grace.Store(int64(c.AgeGrace))
}

// listener counts the TCP connections that it accepts.
type listener struct {
	net.Listener
	connections *connections
}

// Accept implements net.Listener. Only the server's user can connect to a unix socket.
func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	fd := descriptorOf(conn)
	if tcp, ok := conn.(*net.TCPConn); ok {
		return l.connections.enter(tcp, fd), nil
	}
	if ceiling := l.connections.ceiling.Load(); ceiling > 0 && int64(fd) >= ceiling {
		l.connections.shed()
	}
	return conn, nil
}

// enter adds a connection. If there are too many, it closes another one.
func (t *connections) enter(tcp *net.TCPConn, fd int) *connection {
	c := newConnection(t, tcp)
	t.mu.Lock()
	t.open++
	if t.ends != nil {
		c.ends = endsOf(tcp)
		t.ends[c.ends] = c
	}
	c.place = t.queue.PushBack(c)
	c.late = time.AfterFunc(t.time, func() { _ = c.Close() })
	if age := time.Duration(t.age.Load()); age > 0 {
		c.old = time.AfterFunc(jittered(age), c.retire)
	}
	unknown, open := t.queue.Len() > t.unknown, int64(t.open) > t.most.Load()
	var oldest *connection
	if unknown {
		oldest, _ = t.queue.Front().Value.(*connection)
	}
	t.mu.Unlock()
	ceiling := t.ceiling.Load()
	switch {
	case oldest != nil:
		_ = oldest.Close()
	case open, ceiling > 0 && int64(fd) >= ceiling:
		t.shed()
	}
	return c
}

// shed closes a connection of the caller with the most connections, in favour of a new one. All unauthenticated
// connections together count as one caller's. One that has exceeded introduceTime is closed first.
func (t *connections) shed() {
	t.mu.Lock()
	var top *callerUse
	for _, use := range t.callers {
		if top == nil || len(use.conns) > len(top.conns) {
			top = use
		}
	}
	var victim, oldest *connection
	if front := t.queue.Front(); front != nil {
		oldest, _ = front.Value.(*connection)
	}
	switch {
	case oldest != nil && time.Since(oldest.since) > introduceTime:
		victim = oldest
	case top != nil && len(top.conns) > 1 && len(top.conns) >= t.queue.Len():
		victim = top.idlest()
	case oldest != nil:
		victim = oldest
	case top != nil:
		victim = top.idlest()
	}
	if victim == nil {
		t.mu.Unlock()
		return
	}
	known, who := victim.use != nil, victim.key()
	t.remove(victim)
	open := t.open
	t.mu.Unlock()
	if !known {
		_ = victim.TCPConn.Close()
		return
	}
	t.log.Warn("connection closed: too many connections", slog.String("tenant", who.tenant),
		slog.String("caller", who.name),
		slog.Int("open", open))
	t.dismiss(victim, true, shedFlush, "the server has too many connections (max_connections), and this caller has "+
		"the most")
}

// dismiss closes a connection and tells the client the reason, which the client may take up to flush to read. It does
// not wait.
func (t *connections) dismiss(c *connection, calm bool, flush time.Duration, why string) {
	t.task(func() {
		c.goAway(calm, why)
		c.pause(flush)
		_ = c.TCPConn.Close() // gRPC notices this and cleans up
	})
}

// task runs f on a goroutine that close waits for. After close it does nothing.
func (t *connections) task(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.stopped {
		t.tasks.Go(f)
	}
}

// close waits for all tasks. It is called after the connections were closed.
func (t *connections) close() {
	t.mu.Lock()
	if !t.stopped {
		t.stopped = true
		close(t.stop)
	}
	t.mu.Unlock()
	t.tasks.Wait()
}

// idlest returns the caller's newest connection without calls, or else its newest one.
func (u *callerUse) idlest() *connection {
	for _, c := range slices.Backward(u.conns) {
		if c.calls.all.Load() == 0 {
			return c
		}
	}
	return u.conns[len(u.conns)-1]
}

// remove removes a connection from all counts. The caller holds mu.
func (t *connections) remove(c *connection) {
	if c.gone {
		return
	}
	c.gone = true
	t.open--
	if t.ends != nil && t.ends[c.ends] == c {
		delete(t.ends, c.ends)
	}
	t.known(c)
	if c.old != nil {
		c.old.Stop()
	}
	if c.expiry != nil {
		c.expiry.Stop()
	}
	t.disown(c)
}

// known removes a connection from the queue of unauthenticated ones. The caller holds mu.
func (t *connections) known(c *connection) {
	if c.place != nil {
		t.queue.Remove(c.place)
		c.place = nil
		c.late.Stop()
	}
}

// own assigns a connection to a caller, unless the caller has too many; force ignores that limit. The caller holds
// mu.
func (t *connections) own(c *connection, key callerKey, force bool) error {
	own, all := limitsOf(t.policy, key.tenant)
	tenant := t.tenants[key.tenant]
	if tenant == nil {
		tenant = &tenantUse{}
	}
	use := t.callers[key]
	if use == nil {
		use = &callerUse{key: key, tenant: tenant}
	}
	switch n := len(use.conns); {
	case force:
	case own.CallerConnections > 0 && n >= own.CallerConnections:
		return quota.Exceeded("caller_connections", int64(own.CallerConnections), false, retryConnect)
	case own.Connections > 0 && tenant.conns >= own.Connections:
		return quota.Exceeded("connections", int64(own.Connections), false, retryConnect)
	case all.Connections > 0 && t.owned() >= all.Connections:
		return quota.Exceeded("connections", int64(all.Connections), true, retryConnect)
	}
	t.callers[key], t.tenants[key.tenant] = use, tenant
	tenant.conns++
	use.conns = append(use.conns, c)
	c.use = use
	return nil
}

// useOf returns the use of a caller, whose connections may be other callers'.
func (t *connections) useOf(key callerKey) *callerUse {
	t.mu.Lock()
	defer t.mu.Unlock()
	use := t.callers[key]
	if use == nil {
		if t.tenants[key.tenant] == nil {
			t.tenants[key.tenant] = &tenantUse{}
		}
		use = &callerUse{key: key, tenant: t.tenants[key.tenant]}
		t.callers[key] = use
	}
	return use
}

// retryConnect is the suggested time before a retry for callers with too many connections.
const retryConnect = time.Second

// owned returns the number of authenticated connections. The caller holds mu.
func (t *connections) owned() int { return t.open - t.queue.Len() }

// disown removes a connection from its caller. The caller holds mu.
func (t *connections) disown(c *connection) {
	use := c.use
	if use == nil {
		return
	}
	c.use = nil
	use.conns = slices.DeleteFunc(use.conns, func(other *connection) bool { return other == c })
	use.tenant.conns--
	if len(use.conns) > 0 || len(t.callers) < 2*t.open+sweepCallers {
		return
	}
	used := map[*tenantUse]bool{}
	for key, u := range t.callers {
		// Handlers of closed connections may still hold requests, which count.
		if len(u.conns) == 0 && u.bytes.Load() <= 0 {
			delete(t.callers, key)
			u.swept.Store(true)
		} else {
			used[u.tenant] = true
		}
	}
	for name, u := range t.tenants {
		if !used[u] {
			delete(t.tenants, name)
		}
	}
}

// sweepCallers is the number of stored callers without connections above which they are swept.
const sweepCallers = 256

// all returns the authenticated connections.
func (t *connections) all() (out []*connection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, use := range t.callers {
		out = append(out, use.conns...)
	}
	return out
}

// check closes the connections whose callers have no role in a policy, and those above its limits.
func (t *connections) check(p *policy.Policy) {
	for _, c := range t.all() {
		c.recheck(p)
	}
	for _, victim := range t.excess(p) {
		t.dismiss(victim, true, shedFlush, "the policy allows fewer connections")
	}
}

// excess removes and returns the connections above a policy's limits.
func (t *connections) excess(p *policy.Policy) (out []*connection) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, use := range t.callers {
		of, _ := p.Tenant(use.key.tenant)
		own, tenants := of.Limits.CallerConnections, of.Limits.Connections
		for own > 0 && len(use.conns) > own || tenants > 0 && use.tenant.conns > tenants && len(use.conns) > 0 {
			victim := use.idlest()
			t.remove(victim)
			out = append(out, victim)
		}
	}
	return out
}
