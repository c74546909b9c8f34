// Package h2 follows the frames of an HTTP/2 connection below gRPC: it knows the stream of each call and the memory
// used by each stream's requests, refuses a stream that uses too much, and can send GOAWAY at any time. gRPC offers
// none of these for a single connection.
//
// Conn.mu guards the streams and Conn.wmu writing; they are not held together. The package starts no goroutines.
package h2

import (
	"bytes"
	"net"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/copilot-grpc/copilot-grpc/server/account"
)

// Config configures a Conn.
type Config struct {
	// Budget is that of streams which are not open yet.
	Budget account.Budget
	// Refusal returns the trailers for an error of a Budget.
	Refusal func(error) []hpack.HeaderField
	// MaxMessage is the size of the largest accepted message.
	MaxMessage int
}

// Conn is a server's side of a connection. Read is for one goroutine; all other methods are safe for concurrent use.
type Conn struct {
	net.Conn
	config Config

	// Owned by the reader: rest was read and not delivered yet; inserted are frames to deliver at the next boundary.
	in             scanner
	rest, inserted []byte

	// mu guards the streams. It is not held together with wmu.
	mu      sync.Mutex
	streams map[uint32]*Stream
	latest  *Stream // whose headers were received last
	closed  bool

	// wmu guards writing. late are frames to write at the next boundary.
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

// Latest returns the stream whose headers were delivered last. While gRPC's reader processes a stream's headers, it
// is that stream, because headers are delivered without the data behind them.
func (c *Conn) Latest() *Stream {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest
}

// adjust counts a change that is never refused. The caller holds mu.
func (s *Stream) adjust(n int) {
	if n != 0 {
		s.budget.Change(n)
	}
}

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
		return taken, nil // the next Read returns the error again
	}
	return n, err
}

// Close implements net.Conn. Afterwards only messages in use by handlers count.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.closed = true
	for _, s := range c.streams {
		c.forget(s)
	}
	c.mu.Unlock()
	return c.Conn.Close()
}

// follow processes received data up to the end of headers or to the place of inserted frames, and returns its length.
func (c *Conn) follow(p []byte) (taken int) {
	for taken < len(p) {
		n, payload, begun, ended := c.in.next(p[taken:])
		taken += n
		switch h := c.in.at; {
		case !begun && len(payload) == 0 && !ended:
		case h.Type == http2.FrameHeaders && begun:
			c.begin(h.StreamID)
		case h.Type == http2.FrameData:
			c.data(h, payload, begun)
		case h.Type == http2.FrameRSTStream && begun:
			c.end(h.StreamID)
		}
		headers := c.in.at.Type == http2.FrameHeaders || c.in.at.Type == http2.FrameContinuation
		if ended && !c.in.block && (headers || len(c.inserted) > 0) {
			return taken
		}
	}
	return taken
}

// begin adds a stream. Headers of a known stream are trailers.
func (c *Conn) begin(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams[id] == nil && !c.closed {
		c.latest = &Stream{conn: c, id: id, budget: c.config.Budget}
		c.streams[id] = c.latest
	}
}

// end removes a stream after either side has ended it.
func (c *Conn) end(id uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forget(c.streams[id])
}

// forget subtracts the stream's cost, except for messages that its handler still uses. The caller holds mu.
func (c *Conn) forget(s *Stream) {
	if s == nil {
		return
	}
	s.adjust(-s.waiting())
	s.whole, s.partial, s.opened = nil, 0, 0
	delete(c.streams, s.id)
}

// data counts the payload of a DATA frame.
func (c *Conn) data(h http2.FrameHeader, payload []byte, begun bool) {
	c.mu.Lock()
	s := c.streams[h.StreamID]
	if s == nil || c.closed {
		c.mu.Unlock()
		return
	}
	if begun {
		s.padding = -1
		if !h.Flags.Has(http2.FlagDataPadded) {
			s.padding = 0
		}
	}
	if s.padding < 0 && len(payload) > 0 {
		s.padding, payload = int(payload[0]), payload[1:]
	}
	// The rest of the frame after the payload may be padding, in part or completely.
	if over := s.padding - c.in.left; over > 0 {
		payload = payload[:max(0, len(payload)-over)]
	}
	cost := s.add(payload, c.config.MaxMessage)
	if cost == 0 {
		c.mu.Unlock()
		return
	}
	err := s.budget.Take(cost)
	if err == nil {
		c.mu.Unlock()
		return
	}
	answered := s.answered
	s.refused = err
	c.forget(s)
	c.mu.Unlock()
	c.refuse(h.StreamID, answered, err)
}

// refuse ends a stream for both sides: the client receives the error, gRPC a reset. Only the reader calls it.
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
		_ = f.WriteRSTStream(id, http2.ErrCodeNo) // the client should send no more of it
	}
	c.Say(told.Bytes())
}

// block encodes headers without changing the connection's compression state.
func block(fields []hpack.HeaderField) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, f := range fields {
		f.Sensitive = true
		_ = e.WriteField(f)
	}
	return b.Bytes()
}

// GoAway asks the client to start no more calls on the connection. Current calls continue.
func (c *Conn) GoAway(code http2.ErrCode, why string) {
	var b bytes.Buffer
	_ = http2.NewFramer(&b, nil).WriteGoAway(1<<31-1, code, []byte(why))
	c.Say(b.Bytes())
}
