package process

import (
	"bufio"
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

// readStderr reads stderr to its end, even if there is no listener, so that the child never blocks on it. Lines over
// maxLine are truncated, and empty ones left out.
func (p *Process) readStderr() {
	defer p.stderr.Close()
	in := bufio.NewReaderSize(io.TeeReader(p.stderr, &p.tail), maxLine)
	for {
		line, more, err := in.ReadLine()
		if line = bytes.TrimRight(line, "\r\n\t "); len(line) > 0 && p.opts.Stderr != nil {
			p.opts.Stderr(string(bytes.ToValidUTF8(line, []byte("\uFFFD"))))
		}
		for more && err == nil {
			_, more, err = in.ReadLine()
		}
		if err != nil {
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

// Write implements io.Writer. It never fails.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, b...)
	if over := len(t.buf) - maxTail; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
		t.cut = true
	}
	return len(b), nil
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
