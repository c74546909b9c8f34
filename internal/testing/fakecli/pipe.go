package fakecli

import (
	"io"
	"sync"
)

// pipeSize is the capacity of one direction, that of an operating system pipe.
const pipeSize = 64 << 10

// half is one direction of a duplex pipe.
type half struct {
	mu       sync.Mutex
	changed  sync.Cond
	buf      []byte
	finished bool // by the writer: the reader gets what is left, then EOF
	broken   bool // by the reader: writes fail
}

func newHalf() *half {
	h := &half{}
	h.changed.L = &h.mu
	return h
}

func (h *half) Read(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.buf) == 0 && !h.finished && !h.broken {
		h.changed.Wait()
	}
	switch {
	case h.broken:
		return 0, io.ErrClosedPipe
	case len(h.buf) == 0:
		return 0, io.EOF
	}
	n := copy(p, h.buf)
	h.buf = h.buf[:copy(h.buf, h.buf[n:])]
	h.changed.Broadcast()
	return n, nil
}

func (h *half) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	written := 0
	for len(p) > 0 {
		for len(h.buf) == pipeSize && !h.finished && !h.broken {
			h.changed.Wait()
		}
		if h.finished || h.broken {
			return written, io.ErrClosedPipe
		}
		n := min(len(p), pipeSize-len(h.buf))
		h.buf = append(h.buf, p[:n]...)
		p, written = p[n:], written+n
		h.changed.Broadcast()
	}
	return written, nil
}

func (h *half) end(broken bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.finished = true
	h.broken = h.broken || broken
	h.changed.Broadcast()
}

// duplex is one end of an in-process connection. It behaves as a child's stdin
// and stdout do: buffered, each direction ended on its own.
type duplex struct{ in, out *half }

// newPipe returns the two ends of an in-process connection.
func newPipe() (a, b duplex) {
	x, y := newHalf(), newHalf()
	return duplex{x, y}, duplex{y, x}
}

func (d duplex) Read(p []byte) (int, error)  { return d.in.Read(p) }
func (d duplex) Write(p []byte) (int, error) { return d.out.Write(p) }

// CloseWrite ends the outgoing direction: the other end reads EOF.
func (d duplex) CloseWrite() error {
	d.out.end(false)
	return nil
}

func (d duplex) Close() error {
	d.out.end(false)
	d.in.end(true)
	return nil
}
