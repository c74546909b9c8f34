package h2

import "golang.org/x/net/http2"

// Write implements net.Conn. It records which streams the server answers and ends.
func (c *Conn) Write(p []byte) (int, error) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	written := 0
	for at := 0; at < len(p); {
		n, _, begun, ended := c.out.next(p[at:])
		at += n
		if begun {
			c.answered(c.out.at)
		}
		if ended && len(c.late) > 0 && c.out.boundary() {
			n, err := c.Conn.Write(p[written:at])
			if written += n; err != nil {
				return written, err
			}
			if err := c.flush(); err != nil {
				return written, err
			}
		}
	}
	n, err := c.Conn.Write(p[written:])
	return written + n, err
}

// answered records the effect of a server's frame on its stream.
func (c *Conn) answered(h http2.FrameHeader) {
	ends := (h.Type == http2.FrameHeaders || h.Type == http2.FrameData) && h.Flags.Has(http2.FlagHeadersEndStream)
	if h.Type != http2.FrameHeaders && h.Type != http2.FrameRSTStream && !ends {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.streams[h.StreamID]
	switch {
	case s == nil:
	case ends || h.Type == http2.FrameRSTStream:
		c.forget(s)
	default:
		s.answered = true
	}
}

// Say writes whole frames: at once if no frame is partially written, or else after that frame.
func (c *Conn) Say(frames []byte) {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.late = append(c.late, frames...)
	if c.out.boundary() {
		_ = c.flush() // the reader will notice the broken connection
	}
}

// flush writes the waiting frames. The caller holds wmu.
func (c *Conn) flush() error {
	_, err := c.Conn.Write(c.late)
	c.late = nil
	return err
}
