// Package h2 looks at the frames of an HTTP/2 connection below gRPC: it knows which stream a
// call is on and what the requests on each stream cost in memory, refuses a stream that costs
// too much, and says GOAWAY at any time. gRPC offers none of these for a single connection.
package h2

import (
	"bytes"
	"net"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Budget is where the bytes of a connection's requests are counted. It is called with locks
// held, and must neither wait nor call back.
type Budget interface {
	// Take counts n bytes more, on a connection that holds held already. An error refuses the
	// stream that they came on, which gives them back.
	Take(n, held int) error
	// Change counts n bytes more, or less, that are not refused.
	Change(n int)
}

// Config is what a Conn needs.
type Config struct {
	Budget Budget
	// Refusal returns the trailers that tell an error of Budget to a caller.
	Refusal func(error) []hpack.HeaderField
	// MaxMessage is the largest message that is taken.
	MaxMessage int
}

// Conn is a server's side of a connection. Read is for one goroutine, all else for any.
type Conn struct {
	net.Conn
	config Config

	// The reader's: rest is what was read and not handed on yet, inserted are frames to be
	// handed on at the next boundary.
	in             scanner
	rest, inserted []byte

	// mu guards the streams. It is not held together with wmu.
	mu      sync.Mutex
	streams map[uint32]*Stream
	latest  *Stream // whose headers came last
	sum     int
	closed  bool

	// wmu guards writing. late are frames that are to be written at the next boundary.
	wmu  sync.Mutex
	out  scanner
	late []byte
}

// Wrap returns a connection that follows conn's frames.
func Wrap(conn net.Conn, config Config) *Conn {
	return &Conn{
		Conn: conn, config: config, streams: map[uint32]*Stream{}, in: scanner{preface: len(http2.ClientPreface)},
	}
}

// Latest returns the stream whose headers the reader got last. While gRPC's reader works on
// the headers of a stream, that is the stream: nothing behind headers is handed on with them.
func (c *Conn) Latest() *Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest
}

// Held is what the connection's requests cost.
func (c *Conn) Held() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sum
}

// adjust counts a change that is not refused. The caller holds mu.
func (c *Conn) adjust(n int) {
	if n != 0 {
		c.sum += n
		c.config.Budget.Change(n)
	}
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if len(c.inserted) > 0 && c.in.boundary() {
		n := copy(p, c.inserted)
		c.inserted = c.inserted[n:]
		return n, nil
	}
	if len(c.rest) > 0 {
		n := copy(p, c.rest)
		if n = c.follow(p[:n]); n < len(c.rest) {
			c.rest = c.rest[n:]
		} else {
			c.rest = nil
		}
		return n, nil
	}
	n, err := c.Conn.Read(p)
	if taken := c.follow(p[:n]); taken < n {
		c.rest = bytes.Clone(p[taken:n])
		return taken, nil // an error comes again
	}
	return n, err
}

// Close implements net.Conn. Only what handlers still have is counted after it.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.closed = true
	for _, s := range c.streams {
		c.forget(s)
	}
	c.mu.Unlock()
	return c.Conn.Close()
}

// follow looks at what was read, up to the end of headers or to where frames are to be
// inserted, and returns how much that is.
func (c *Conn) follow(p []byte) (taken int) {
	for taken < len(p) {
		n, payload, begun, ended := c.in.next(p[taken:])
		taken += n
		switch h := c.in.at; {
		case !begun && len(payload) == 0 && !ended:
		case h.kind == http2.FrameHeaders && begun:
			c.begin(h.stream)
		case h.kind == http2.FrameData:
			c.data(h, payload, begun)
		case h.kind == http2.FrameRSTStream && begun:
			c.end(h.stream)
		}
		headers := c.in.at.kind == http2.FrameHeaders || c.in.at.kind == http2.FrameContinuation
		if ended && !c.in.block && (headers || len(c.inserted) > 0) {
			return taken
		}
	}
	return taken
}

// begin notes a stream; the headers of one that is known are trailers.
func (c *Conn) begin(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams[id] == nil && !c.closed {
		c.latest = &Stream{conn: c, id: id}
		c.streams[id] = c.latest
	}
}

// end forgets a stream, whichever side has ended it.
func (c *Conn) end(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(c.streams[id])
}

// forget gives back what a stream costs, except what its handler still has. The caller holds mu.
func (c *Conn) forget(s *Stream) {
	if s == nil {
		return
	}
	c.adjust(-s.waiting())
	s.whole, s.partial, s.opened = nil, 0, 0
	delete(c.streams, s.id)
}

// data counts the payload of a DATA frame.
func (c *Conn) data(h head, payload []byte, begun bool) {
	c.mu.Lock()
	s := c.streams[h.stream]
	if s == nil || c.closed {
		c.mu.Unlock()
		return
	}
	if begun {
		s.padding = -1
		if !h.flags.Has(http2.FlagDataPadded) {
			s.padding = 0
		}
	}
	if s.padding < 0 && len(payload) > 0 {
		s.padding, payload = int(payload[0]), payload[1:]
	}
	// What is left of the frame behind the payload may be padding in part, or all of it.
	if over := s.padding - c.in.left; over > 0 {
		payload = payload[:max(0, len(payload)-over)]
	}
	cost := s.add(payload, c.config.MaxMessage)
	if cost == 0 {
		c.mu.Unlock()
		return
	}
	err := c.config.Budget.Take(cost, c.sum)
	c.sum += cost
	if err == nil {
		c.mu.Unlock()
		return
	}
	answered := s.answered
	s.refused = err
	c.forget(s)
	c.mu.Unlock()
	c.refuse(h.stream, answered, err)
}

// refuse ends a stream for both sides: the caller gets the error, gRPC a reset. Only the reader
// calls it.
func (c *Conn) refuse(id uint32, answered bool, err error) {
	var reset bytes.Buffer
	_ = http2.NewFramer(&reset, nil).WriteRSTStream(id, http2.ErrCodeCancel)
	c.inserted = append(c.inserted, reset.Bytes()...)
	var told bytes.Buffer
	f := http2.NewFramer(&told, nil)
	if answered {
		_ = f.WriteRSTStream(id, http2.ErrCodeEnhanceYourCalm)
	} else {
		_ = f.WriteHeaders(http2.HeadersFrameParam{
			StreamID: id, BlockFragment: block(c.config.Refusal(err)), EndHeaders: true, EndStream: true,
		})
		_ = f.WriteRSTStream(id, http2.ErrCodeNo) // send no more of it
	}
	c.Say(told.Bytes())
}

// block encodes headers in a way that leaves the connection's compression as it is.
func block(fields []hpack.HeaderField) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, f := range fields {
		f.Sensitive = true
		_ = e.WriteField(f)
	}
	return b.Bytes()
}

// GoAway asks the caller to begin no more calls on the connection. Those under way go on.
func (c *Conn) GoAway(code http2.ErrCode, why string) {
	var b bytes.Buffer
	_ = http2.NewFramer(&b, nil).WriteGoAway(1<<31-1, code, []byte(why))
	c.Say(b.Bytes())
}
