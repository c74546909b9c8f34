package terminal

import (
	"bytes"
	"context"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// detour is a way to a server on which a call is held up. Requests are readable on it: the server's socket has no TLS.
type detour struct {
	// path is the socket of the detour.
	path string
	// held is closed when a call with the mark has come; it and all behind it go on when release is closed.
	held, release chan struct{}

	mark   []byte
	server string
	once   sync.Once
}

// newDetour opens a detour that holds up the call with a mark until the test closes release.
func newDetour(d *harness.Daemon, mark string) *detour {
	d.T.Helper()
	t := d.T
	way := &detour{
		path: filepath.Join(t.TempDir(), "d"), held: make(chan struct{}), release: make(chan struct{}),
		mark: []byte(mark), server: filepath.Join(d.Root, "s"),
	}
	listener, err := net.Listen("unix", way.path)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { way.relay(t, from) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		running.Wait()
	})
	return way
}

// relay relays a connection until one of its ends closes it, or the test ends.
func (w *detour) relay(t *testing.T, from net.Conn) {
	to, err := net.Dial("unix", w.server)
	if err != nil {
		t.Error(err)
		_ = from.Close()
		return
	}
	shut := func() { _, _ = from.Close(), to.Close() }
	defer context.AfterFunc(t.Context(), shut)()
	var both sync.WaitGroup
	both.Go(func() { defer shut(); w.copy(t, to, from, true) })
	both.Go(func() { defer shut(); w.copy(t, from, to, false) })
	both.Wait()
}

// copy copies what one end sends to the other.
func (w *detour) copy(t *testing.T, to, from net.Conn, isRequest bool) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if isRequest && bytes.Contains(buffer[:n], w.mark) {
			w.once.Do(func() { close(w.held) })
			select {
			case <-w.release:
			case <-t.Context().Done():
				return
			}
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}
