package sim

import (
	"bytes"
	"io"
	"strconv"
	"sync"
)

// pipe is the connection of the bridge to a CLI process. What the bridge writes is cut into messages for the process, and
// what the process says waits until the bridge reads it: neither side waits for the other.
type pipe struct {
	receive func(body []byte)
	// point is called before and after the bridge writes, and after it reads.
	point func()

	mu     sync.Mutex
	arrive *sync.Cond
	in     []byte // of the bridge, not a whole message yet
	out    []byte // for the bridge
	closed bool
}

func newPipe(receive func(body []byte), point func()) *pipe {
	p := &pipe{receive: receive, point: point}
	p.arrive = sync.NewCond(&p.mu)
	return p
}

// Read implements io.Reader for the bridge.
func (p *pipe) Read(into []byte) (int, error) {
	defer p.point()
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.out) == 0 && !p.closed {
		p.arrive.Wait()
	}
	if len(p.out) == 0 {
		return 0, io.EOF
	}
	n := copy(into, p.out)
	p.out = p.out[n:]
	return n, nil
}

// Write implements io.Writer for the bridge.
func (p *pipe) Write(b []byte) (int, error) {
	p.point()
	defer p.point()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return 0, io.ErrClosedPipe
	}
	whole, rest := frames(append(p.in, b...))
	p.in = rest
	p.mu.Unlock()
	for _, body := range whole {
		p.receive(body)
	}
	return len(b), nil
}

// frames cuts bytes into messages; the rest is not a whole one yet.
func frames(b []byte) (whole [][]byte, rest []byte) {
	for {
		header, rest, found := bytes.Cut(b, []byte("\r\n\r\n"))
		n, err := strconv.Atoi(string(bytes.TrimPrefix(header, []byte("Content-Length: "))))
		if !found || err != nil || len(rest) < n {
			return whole, b
		}
		whole = append(whole, bytes.Clone(rest[:n]))
		b = rest[n:]
	}
}

// said takes what the bridge has not read.
func (p *pipe) said() [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	whole, rest := frames(p.out)
	p.out = rest
	return whole
}

// say sends the bridge a message.
func (p *pipe) say(body string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.out = append(p.out, "Content-Length: "...)
		p.out = strconv.AppendInt(p.out, int64(len(body)), 10)
		p.out = append(p.out, "\r\n\r\n"...)
		p.out = append(p.out, body...)
		p.arrive.Broadcast()
	}
}

// Close implements io.Closer for both sides. The bridge can still read what was said before.
func (p *pipe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.arrive.Broadcast()
	return nil
}
