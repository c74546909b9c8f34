package server

import (
	"container/list"
	"errors"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/internal/leaving"
	"github.com/copilot-grpc/copilot-grpc/server/h2"
)

// errUnknown closes a connection that receives too much data before it is authenticated.
var errUnknown = errors.New("the connection received too many bytes before it was authenticated")

// connection is a connection over TCP.
type connection struct {
	*net.TCPConn
	table *connections
	// known reports that a caller on it was authenticated.
	known atomic.Bool
	bytes atomic.Int64
	// calls counts the admitted calls in progress.
	calls callCount
	// frames follows the connection's frames after the handshake.
	frames atomic.Pointer[h2.Conn]
	// mesh reports that the control plane has configured its TLS. It is set before the first call.
	mesh bool
	// latest is the last introduction.
	latest atomic.Pointer[introduction]
	// away is closed when the connection's streams should leave, ended when they are to be cancelled.
	away, ended chan struct{}
	retired     sync.Once
	// closed is closed with the connection.
	closed    chan struct{}
	closeOnce sync.Once
	signal    leaving.Signal

	// held is the cost of its requests, unproven that of calls whose proof is not valid. stranger pays for those.
	held, unproven atomic.Int64
	stranger       payer

	// The table's mu guards the following fields. place is the element in the queue of unauthenticated connections,
	// since the time of the connect.
	place             *list.Element
	since             time.Time
	ends              ends // zero without xDS
	late, old, expiry *time.Timer
	use               *callerUse
	introduced        []*introduction
	gone              bool
}

func newConnection(t *connections, tcp *net.TCPConn) *connection {
	c := &connection{
		TCPConn: tcp, table: t, since: time.Now(), away: make(chan struct{}), ended: make(chan struct{}),
		closed: make(chan struct{}),
	}
	c.stranger.on = c
	c.signal = leaving.Signal{Away: c.away, Ended: c.ended,
		Grace: func() time.Duration { return time.Duration(t.grace.Load()) }}
	return c
}

func (c *connection) Read(p []byte) (int, error) {
	n, err := c.TCPConn.Read(p)
	if !c.known.Load() && c.bytes.Add(int64(n)) > unknownBytes {
		_ = c.Close()
		return 0, errUnknown
	}
	return n, err
}

func (c *connection) Close() error {
	c.table.mu.Lock()
	c.table.remove(c)
	c.table.mu.Unlock()
	c.closeOnce.Do(func() { close(c.closed) })
	return c.TCPConn.Close()
}

// key returns the caller that the connection counts for. The caller holds the table's mu.
func (c *connection) key() callerKey {
	if c.use == nil {
		return callerKey{}
	}
	return c.use.key
}

// follow returns the handshake's connection with a follower of its frames.
func (c *connection) follow(safe net.Conn, maxMessage int) net.Conn {
	f := h2.Wrap(safe, h2.Config{Budget: &c.stranger, Refusal: trailersOf, MaxMessage: maxMessage})
	c.frames.Store(f)
	return f
}

// stream returns the stream whose headers were received last; nil if there is none.
func (c *connection) stream() *h2.Stream {
	if f := c.frames.Load(); f != nil {
		return f.Latest()
	}
	return nil
}

// goAway asks the client to start no more calls. calm reports that a limit was exceeded.
func (c *connection) goAway(calm bool, why string) {
	code := http2.ErrCodeNo
	if calm {
		code = http2.ErrCodeEnhanceYourCalm
	}
	if f := c.frames.Load(); f != nil {
		_ = c.SetWriteDeadline(time.Now().Add(revokeFlush)) // the connection will be closed
		f.GoAway(code, why)
	}
}

// jittered changes an age by up to a tenth, so that connections opened together do not end together.
func jittered(age time.Duration) time.Duration {
	return age - age/10 + time.Duration(rand.Int64N(int64(age/5)+1)) //nolint:gosec // no secret
}

// retire ends a connection at its maximum age: it asks the streams to leave, and cancels the calls that remain after
// the grace.
func (c *connection) retire() {
	c.retired.Do(func() {
		c.table.task(func() { // which a client that does not read may delay
			if f := c.frames.Load(); f != nil {
				f.GoAway(http2.ErrCodeNo, "the connection has reached its age (max_connection_age)")
			}
		})
		c.table.task(func() {
			close(c.away)
			if !c.pause(time.Duration(c.table.grace.Load())) {
				return
			}
			close(c.ended)
			if c.pause(revokeFlush) {
				_ = c.Close()
			}
		})
	})
}

// pause waits. It returns false if the connection is closed or the server stops meanwhile.
func (c *connection) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.closed:
	case <-c.table.stop:
	}
	return false
}

// payer is the caller of calls on a connection, which pays for them with its tenant and the server: the connection of a
// proxy has calls of many. It is an account.Budget.
type payer struct {
	on  *connection
	use *callerUse // nil: no valid proof came with the call
}

// Take implements account.Budget.
func (p *payer) Take(n int) error {
	p.Change(n)
	return p.exceeded()
}

// exceeded returns an error if the requests of the connection, the caller, the tenant or the server exceed a limit.
func (p *payer) exceeded() error {
	if p.use == nil {
		// Read closes a connection without any proof.
		if p.on.known.Load() && p.on.unproven.Load() > unknownBytes {
			return fault.New(fault.Unauthenticated, "calls without a valid proof have sent more than %d bytes on the "+
				"connection", unknownBytes)
		}
		return nil
	}
	t, use := p.on.table, p.use
	own, all := limitsOf(t.policy, use.key.tenant)
	switch {
	case own.ConnectionRequestBytes > 0 && p.on.held.Load() > own.ConnectionRequestBytes:
		return quota.Exceeded("connection_request_bytes", own.ConnectionRequestBytes, false, retryConnect)
	case own.CallerRequestBytes > 0 && use.bytes.Load() > own.CallerRequestBytes:
		return quota.Exceeded("caller_request_bytes", own.CallerRequestBytes, false, retryConnect)
	case own.RequestBytes > 0 && use.tenant.bytes.Load() > own.RequestBytes:
		return quota.Exceeded("request_bytes", own.RequestBytes, false, retryConnect)
	case all.RequestBytes > 0 && t.bytes.Load() > all.RequestBytes:
		return quota.Exceeded("request_bytes", all.RequestBytes, true, retryConnect)
	}
	return nil
}

// Change implements account.Budget.
func (p *payer) Change(n int) {
	p.on.held.Add(int64(n))
	if p.use == nil {
		p.on.unproven.Add(int64(n))
		return
	}
	p.use.bytes.Add(int64(n))
	p.use.tenant.bytes.Add(int64(n))
	p.on.table.bytes.Add(int64(n))
}

// callOverhead is the memory of a call in addition to its headers and messages: a goroutine, its stack, and the state
// of the transport.
const callOverhead = 16 << 10

// handshaken is the result of a handshake, its connection over TCP, and the calls on it.
type handshaken struct {
	credentials.AuthInfo
	on    *connection // nil on a unix socket
	calls *callCount
}

// GetSecurityValue implements credentials.ChannelzSecurityInfo.
func (h handshaken) GetSecurityValue() credentials.ChannelzSecurityValue {
	if c, ok := h.AuthInfo.(credentials.ChannelzSecurityInfo); ok {
		return c.GetSecurityValue()
	}
	return nil
}

// connectionOf returns the TCP connection of a call, nil if there is none, and the result of its handshake.
func connectionOf(p *peer.Peer) (*connection, credentials.AuthInfo) {
	if h, ok := p.AuthInfo.(handshaken); ok {
		return h.on, h.AuthInfo
	}
	if a, ok := p.Addr.(meshAddr); ok {
		return a.on, p.AuthInfo
	}
	return nil, p.AuthInfo
}

// callsOf returns the calls on the connection of a call; nil if they are not counted.
func callsOf(p *peer.Peer) *callCount {
	if h, ok := p.AuthInfo.(handshaken); ok {
		return h.calls
	}
	if on, _ := connectionOf(p); on != nil {
		return &on.calls
	}
	return nil
}
