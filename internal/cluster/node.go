package cluster

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// requestTimeout bounds one request of the background goroutines.
	requestTimeout = 5 * time.Second
	// markerTTL is how long the server tells watches of a key that has expired.
	markerTTL = time.Hour
	// closeTries and closePause bound how long Close tries to end the lease: NATS may be electing a leader.
	closeTries, closePause = 5, time.Second
)

// Config configures a node. JetStream, Cluster and Name are required, and Address if there are other nodes.
type Config struct {
	JetStream jetstream.JetStream
	// Cluster begins the names of the cluster's buckets.
	Cluster string
	// Name is the node's name. Nodes of a cluster should have different names; correctness does not depend on it.
	Name string
	// Address is the "HOST:PORT" at which other nodes reach this one.
	Address string
	// Labels are what sessions can need of the node.
	Labels map[string]string
	// TTL is how long a lease outlasts its last renewal. A session of a node that was killed can be used again after
	// that time. The default is DefaultTTL, the least two seconds. All nodes of a cluster must have the same.
	TTL time.Duration
	// Alone says that no other node can be alive: leases that are left are over.
	Alone bool
	// Replicas is the number of servers that have a copy of each bucket. The default is 1.
	Replicas int
	// Logger receives failures of background work. The default is slog.DiscardHandler.
	Logger *slog.Logger

	now func() time.Duration // uptime, except in tests
}

// Node is this server in a cluster. Join makes one. It is safe for concurrent use.
type Node struct {
	cfg      Config
	timing   timing
	log      *slog.Logger
	nodes    jetstream.KeyValue
	sessions jetstream.KeyValue
	view     *view
	seen     sightings
	held     holdings
	draining atomic.Bool
	state    atomic.Pointer[json.RawMessage] // nil before Tell
	announce chan struct{}                   // capacity 1: the lease is to be renewed now, with its new value

	stop context.CancelFunc
	wg   sync.WaitGroup
}

// Join makes this server a node of a cluster. It returns when the node has a lease and knows the other nodes and the
// sessions. The caller must Close the node.
func Join(ctx context.Context, cfg Config) (*Node, error) {
	if cfg.TTL == 0 {
		cfg.TTL = DefaultTTL
	}
	if cfg.TTL < minTTL {
		return nil, fmt.Errorf("the lease of a node of %s is too short: it needs at least %s", cfg.TTL, minTTL)
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.now == nil {
		cfg.now = uptime
	}
	n := &Node{cfg: cfg, timing: timing{cfg.TTL}, log: cfg.Logger, view: newView(),
		announce: make(chan struct{}, 1)}
	if err := n.openBuckets(ctx); err != nil {
		return nil, err
	}
	if cfg.Alone {
		if err := n.clear(ctx); err != nil {
			return nil, err
		}
	}
	running, stop := context.WithCancel(context.Background())
	n.stop = stop
	if err := n.watch(ctx, running); err != nil {
		n.Close(ctx)
		return nil, err
	}
	if err := n.view.compatible(); err != nil {
		n.Close(ctx)
		return nil, err
	}
	m, revision, err := n.enrol(ctx)
	if err != nil {
		n.Close(ctx)
		return nil, err
	}
	n.wg.Go(func() { n.run(running, m, revision) })
	n.wg.Go(func() { n.endSilent(running) })
	return n, nil
}

// clear ends all leases.
func (n *Node) clear(ctx context.Context) error {
	keys, err := n.nodes.ListKeys(ctx)
	if err != nil {
		return fmt.Errorf("listing the leases of earlier processes: %w", err)
	}
	for key := range keys.Keys() {
		if err := n.nodes.Purge(ctx, key); err != nil {
			return fmt.Errorf("ending the lease of an earlier process: %w", err)
		}
	}
	return ctx.Err()
}

// openBuckets creates the buckets or checks that they have the node's settings.
func (n *Node) openBuckets(ctx context.Context) (err error) {
	replicas := max(n.cfg.Replicas, 1)
	n.nodes, err = n.openBucket(ctx, jetstream.KeyValueConfig{
		Bucket: n.cfg.Cluster + "-nodes", Description: "leases of the nodes",
		TTL: n.cfg.TTL, LimitMarkerTTL: markerTTL, History: 1, Replicas: replicas,
	})
	if err != nil {
		return err
	}
	n.sessions, err = n.openBucket(ctx, jetstream.KeyValueConfig{
		Bucket: n.cfg.Cluster + "-owners", Description: "owners of the sessions", History: 1, Replicas: replicas,
	})
	return err
}

// openBucket creates a bucket, or returns the existing one if it has these settings.
func (n *Node) openBucket(ctx context.Context, want jetstream.KeyValueConfig) (jetstream.KeyValue, error) {
	kv, err := n.cfg.JetStream.CreateKeyValue(ctx, want)
	if err == nil {
		return kv, nil
	}
	if !errors.Is(err, jetstream.ErrBucketExists) {
		return nil, fmt.Errorf("opening the bucket %q: %w", want.Bucket, err)
	}
	if kv, err = n.cfg.JetStream.KeyValue(ctx, want.Bucket); err != nil {
		return nil, fmt.Errorf("opening the bucket %q: %w", want.Bucket, err)
	}
	status, err := kv.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading the settings of the bucket %q: %w", want.Bucket, err)
	}
	if difference := compare(want, status.Config()); difference != "" {
		return nil, fmt.Errorf("the bucket %q has other settings than this server needs: %s; "+
			"give all replicas the same settings, or choose another cluster name", want.Bucket, difference)
	}
	return kv, nil
}

// compare says which setting of a bucket differs from the wanted ones, "" if none does.
func compare(want, have jetstream.KeyValueConfig) string {
	switch {
	case have.TTL != want.TTL:
		return fmt.Sprintf("its keys expire after %s, not %s", have.TTL, want.TTL)
	case have.LimitMarkerTTL != want.LimitMarkerTTL:
		return fmt.Sprintf("its markers expire after %s, not %s", have.LimitMarkerTTL, want.LimitMarkerTTL)
	case have.History != want.History:
		return fmt.Sprintf("it keeps %d values of a key, not %d", have.History, want.History)
	case have.Replicas != want.Replicas:
		return fmt.Sprintf("it has %d replicas, not %d", have.Replicas, want.Replicas)
	}
	return ""
}

// enrol gets a lease under a new name.
func (n *Node) enrol(ctx context.Context) (m *membership, revision uint64, err error) {
	id, value := rand.Text(), n.value()
	sentAt := n.cfg.now()
	revision, err = n.nodes.Create(ctx, id, value)
	if err != nil {
		return nil, 0, fmt.Errorf("getting a lease for the node %q: %w", n.cfg.Name, err)
	}
	m = newMembership(id, n.timing, n.cfg.now, sentAt)
	n.held.begin(m)
	own := decode[member](value)
	n.view.setMember(id, &own) // the watch is later
	n.log.Info("this server has joined the cluster", "cluster", n.cfg.Cluster, "member", id)
	return m, revision, nil
}

// value is the value of the node's key.
func (n *Node) value() []byte {
	m := member{
		Protocol: protocol, Node: n.cfg.Name, Address: n.cfg.Address, Draining: n.draining.Load(), Labels: n.cfg.Labels,
	}
	if state := n.state.Load(); state != nil {
		m.State = *state
	}
	return encode(m)
}

// Tell tells the other nodes a state of this one, which replaces the one before: JSON of at most some tens of KB.
// The node tells it again with each renewal of its lease.
func (n *Node) Tell(state json.RawMessage) {
	n.state.Store(&state)
	n.renewNow()
}

// Told returns the states that the other living nodes have told.
func (n *Node) Told() []json.RawMessage { return n.view.states(n.held.member()) }

// renewNow renews the lease without waiting for its time.
func (n *Node) renewNow() {
	select {
	case n.announce <- struct{}{}:
	default:
	}
}

// Drain makes other nodes take the sessions that would become this node's, or ends that. Sessions that the node has
// stay.
func (n *Node) Drain(on bool) {
	n.draining.Store(on)
	n.view.setDraining(n.held.member(), on) // the watch is later
	n.renewNow()
}

// run renews the lease until ctx ends or the lease does. The node then has none any more: its process must end, and
// would be given sessions that it does not serve.
func (n *Node) run(ctx context.Context, m *membership, revision uint64) {
	n.keep(ctx, m, revision)
	if ctx.Err() == nil {
		n.log.Error("this server has lost its lease, and with it its sessions", "member", m.id)
	}
}

// keep renews a lease until it ends or ctx ends.
func (n *Node) keep(ctx context.Context, m *membership, revision uint64) {
	tick := time.NewTicker(n.timing.every())
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-n.announce:
		case <-m.lost:
			n.held.finish(m)
			return
		case <-ctx.Done():
			return
		}
		next, err := n.renew(ctx, m, revision)
		if err != nil && ctx.Err() == nil {
			n.log.Warn("renewing the lease of this server failed", "error", err)
		}
		revision = next
	}
}

// renew renews a lease once. It returns the revision that the next renewal has to expect. The lease ends if another
// node has fenced it.
func (n *Node) renew(ctx context.Context, m *membership, revision uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, n.timing.every())
	defer cancel()
	sentAt := n.cfg.now()
	next, err := n.nodes.Update(ctx, m.id, n.value(), revision)
	if err == nil {
		m.extend(sentAt)
		return next, nil
	}
	if !isConflict(err) {
		return revision, err
	}
	// The acknowledgement of an earlier renewal was lost, or the key is not this node's any more.
	e, getErr := n.nodes.Get(ctx, m.id)
	if getErr != nil {
		return revision, errors.Join(err, getErr)
	}
	if v := decode[member](e.Value()); v.Fenced {
		m.end()
		return revision, fmt.Errorf("the node %q has found that the lease was over", v.By)
	}
	return max(revision, e.Revision()), err // the next renewal extends the lease
}

// Lost returns a channel that is closed when the lease ends that the node has now; a closed one if it has none.
func (n *Node) Lost() <-chan struct{} { return n.held.lost() }

// Close ends the leases of the node and of its sessions, so that other nodes can have them at once, and waits for the
// goroutines. While NATS does not take the end of the node's lease, Close tries again for some seconds; then the lease
// runs out.
func (n *Node) Close(ctx context.Context) {
	n.stop()
	n.wg.Wait()
	m, leases := n.held.close()
	for _, l := range leases {
		if err := l.handOver(ctx, ""); err != nil { // it ends with the node's
			n.log.Warn("a session was not released", "session_id", l.session, "error", err)
		}
	}
	if m == nil {
		return
	}
	m.end()
	for range closeTries {
		err := n.nodes.Delete(ctx, m.id)
		if err == nil {
			return
		}
		n.log.Warn("the lease of this server was not ended", "error", err)
		if errors.Is(err, nats.ErrConnectionClosed) || !pause(ctx, closePause) {
			return
		}
	}
}

// pause waits. It returns false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
