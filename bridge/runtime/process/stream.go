package process

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"
)

// Bounds of the stored stderr.
const (
	maxTail = 8 << 10
	maxLine = 4 << 10
)

// Read reads the child's standard output. It returns io.EOF shortly after the child's exit even if a descendant keeps
// the pipe open.
func (p *Process) Read(b []byte) (int, error) {
	n, err := p.stdout.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = io.EOF
	}
	return n, err
}

func (p *Process) Write(b []byte) (int, error) { return p.stdin.Write(b) }

// WriteNow writes as much to the child's standard input as fits without waiting. It must not run concurrently with
// itself or Write.
func (p *Process) WriteNow(b []byte) (int, error) { return p.input.write(b) }

// Close closes input and output, and starts the grace times for the child's end. Done reports the end.
func (p *Process) Close() error {
	p.closeOnce.Do(func() { close(p.closed) })
	err := p.CloseWrite()
	if e := p.stdout.Close(); err == nil && !errors.Is(e, os.ErrClosed) {
		err = e
	}
	return err
}

// CloseWrite closes the child's input only. It starts no grace time. It may be called several times; only the first call's
// error counts.
func (p *Process) CloseWrite() error {
	if err := p.stdin.Close(); !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

func (p *Process) closeStreams() {
	p.stdin.Close()
	p.stdout.Close()
	p.stderr.Close()
}

// readStderr reads stderr to its end, even if there is no listener, so that the child never blocks on it.
func (p *Process) readStderr() {
	defer p.stderr.Close()
	lines := lineSplitter{emit: p.opts.Stderr}
	buf := make([]byte, 4<<10)
	for {
		n, err := p.stderr.Read(buf)
		p.tail.write(buf[:n])
		lines.write(buf[:n])
		if err != nil {
			lines.flush()
			return
		}
	}
}

// tail stores the last maxTail bytes written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
	cut bool
}

func (t *tail) write(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - maxTail; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
		t.cut = true
	}
}

// String returns the tail, if possible as whole lines.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.buf
	if i := bytes.IndexByte(b, '\n'); t.cut && i >= 0 {
		b = b[i+1:]
	}
	return string(bytes.ToValidUTF8(bytes.TrimSpace(b), []byte("\uFFFD")))
}

// lineSplitter calls emit with each non-empty line. Lines over maxLine are truncated.
type lineSplitter struct {
	emit func(string)
	line []byte
}

func (s *lineSplitter) write(b []byte) {
	if s.emit == nil {
		return
	}
	for len(b) > 0 {
		i := bytes.IndexByte(b, '\n')
		part, rest := b, []byte(nil)
		if i >= 0 {
			part, rest = b[:i], b[i+1:]
		}
		s.line = append(s.line, part[:min(len(part), maxLine-len(s.line))]...)
		if i >= 0 {
			s.flush()
		}
		b = rest
	}
}

func (s *lineSplitter) flush() {
	if line := bytes.TrimRight(s.line, "\r\n\t "); len(line) > 0 && s.emit != nil {
		s.emit(string(bytes.ToValidUTF8(line, []byte("\uFFFD"))))
	}
	s.line = s.line[:0]
}
