package server

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"
)

// Bounds of connections over TCP on which nobody has proven yet who he is. Whoever does is
// bound by a tenant's limits; the others cost something all the same, for as long as they
// can make a handshake, a header or a request last.
const (
	// maxStrangers is how many there may be. When there are more, the oldest ends: who has
	// a proof brings it with the first call.
	maxStrangers = 2048
	// strangerBytes is what may come on one of them, strangerTime how long it may be one.
	strangerBytes = 256 << 10
	strangerTime  = 30 * time.Second
)

// errStranger ends a connection on which too much comes before a proof does.
var errStranger = errors.New("too much has come before a proof of who calls")

// strangers are those connections.
type strangers struct {
	most int
	time time.Duration

	mu    sync.Mutex
	queue list.List // of *arrival, the oldest first
}

func newStrangers(c *Config) *strangers {
	return &strangers{most: cmp.Or(c.MaxStrangers, maxStrangers), time: cmp.Or(c.StrangerTime, strangerTime)}
}

// doorway is a listener whose connections begin as strangers.
type doorway struct {
	net.Listener
	strangers *strangers
}

// Accept implements net.Listener. On a unix socket there are no strangers.
func (d doorway) Accept() (net.Conn, error) {
	conn, err := d.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok && err == nil {
		return d.strangers.enter(tcp), nil
	}
	return conn, err
}

// arrival is a connection that has come over TCP.
type arrival struct {
	*net.TCPConn
	strangers *strangers
	// place is its own in the queue, nil once it is none of them; the queue's mu guards it.
	place *list.Element
	late  *time.Timer
	known atomic.Bool
	bytes atomic.Int64
}

// enter takes up a connection; the oldest goes where there are too many.
func (s *strangers) enter(conn *net.TCPConn) *arrival {
	a := &arrival{TCPConn: conn, strangers: s}
	s.mu.Lock()
	a.place = s.queue.PushBack(a)
	a.late = time.AfterFunc(s.time, func() { _ = a.Close() })
	var oldest *arrival
	if s.queue.Len() > s.most {
		oldest, _ = s.queue.Front().Value.(*arrival)
	}
	s.mu.Unlock()
	if oldest != nil {
		_ = oldest.Close()
	}
	return a
}

// leave takes the connection off the queue.
func (a *arrival) leave() {
	a.strangers.mu.Lock()
	defer a.strangers.mu.Unlock()
	if a.place != nil {
		a.strangers.queue.Remove(a.place)
		a.place = nil
		a.late.Stop()
	}
}

// introduce notes that somebody on the connection has proven who he is.
func (a *arrival) introduce() {
	if !a.known.Swap(true) {
		a.leave()
	}
}

// Read implements net.Conn.
func (a *arrival) Read(p []byte) (int, error) {
	n, err := a.TCPConn.Read(p)
	if !a.known.Load() && a.bytes.Add(int64(n)) > strangerBytes {
		_ = a.Close()
		return 0, errStranger
	}
	return n, err
}

// Close implements net.Conn.
func (a *arrival) Close() error {
	a.leave()
	return a.TCPConn.Close()
}

// arrived is what a handshake has shown, with the connection that it was made on.
type arrived struct {
	credentials.AuthInfo
	on *arrival
}

// GetSecurityValue implements credentials.ChannelzSecurityInfo.
func (a arrived) GetSecurityValue() credentials.ChannelzSecurityValue {
	if c, ok := a.AuthInfo.(credentials.ChannelzSecurityInfo); ok {
		return c.GetSecurityValue()
	}
	return nil
}

// arrivalOf returns the connection of a call, nil where it is none of TCP's, and what its
// handshake has shown.
func arrivalOf(p *peer.Peer) (*arrival, credentials.AuthInfo) {
	if a, ok := p.AuthInfo.(arrived); ok {
		return a.on, a.AuthInfo
	}
	return nil, p.AuthInfo
}

// greet looks at the headers of a stranger's calls, so that a proof counts before the request
// is there, which may be long. It refuses nothing: the call itself is refused in words of its
// own. It keeps nobody but the stranger waiting.
func (g *gate) greet(ctx context.Context, _ *tap.Info) (context.Context, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ctx, nil
	}
	on, _ := arrivalOf(p)
	if on == nil || on.known.Load() {
		return ctx, nil
	}
	now := g.now()
	id, _, err := g.identify(ctx, now)
	if err == nil {
		_, err = g.resolve(ctx, id, now)
	}
	if err == nil {
		on.introduce()
	}
	return ctx, nil
}
