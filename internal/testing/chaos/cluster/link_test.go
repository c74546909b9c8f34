package cluster

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// link is a network path on loopback: it takes connections and passes their bytes on to a target. A direction that is
// held passes nothing until it is released, as a network that loses all packets; one that is slow delays each piece. It
// is safe for concurrent use. Each connection has two goroutines, which end with it; close ends all.
type link struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond
	held    map[Directions]int // how many actions hold Forth and Back
	delay   time.Duration
	conns   map[net.Conn]struct{}
	closed  bool
}

// newLink starts a link that ends with the test.
func newLink(t *testing.T, target string) *link {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{listener: l, target: target, held: map[Directions]int{}, conns: map[net.Conn]struct{}{}}
	k.changed = sync.NewCond(&k.mu)
	k.wg.Go(k.accept)
	t.Cleanup(k.close)
	return k
}

// address is where the link takes connections.
func (k *link) address() string { return k.listener.Addr().String() }

func (k *link) accept() {
	for {
		in, err := k.listener.Accept()
		if err != nil {
			return
		}
		k.wg.Go(func() { k.serve(in) })
	}
}

// serve passes the bytes of a connection in both directions.
func (k *link) serve(in net.Conn) {
	defer k.drop(in)
	if !k.add(in) {
		return
	}
	out, err := net.DialTimeout("tcp", k.target, time.Second)
	if err != nil {
		return
	}
	defer k.drop(out)
	if !k.add(out) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { k.pass(out, in, Forth) })
	both.Go(func() { k.pass(in, out, Back) })
	both.Wait()
}

// pass copies in one direction until one side ends, and ends the other side then.
func (k *link) pass(to, from net.Conn, d Directions) {
	defer func() { _ = to.Close(); _ = from.Close() }()
	piece := make([]byte, 64<<10)
	for {
		n, err := from.Read(piece)
		if n > 0 {
			if !k.await(d) {
				return
			}
			if _, err := to.Write(piece[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if err == io.EOF {
				k.await(d)
			}
			return
		}
	}
}

// await waits until a piece may pass. It returns false if the link was closed.
func (k *link) await(d Directions) bool {
	k.mu.Lock()
	delay := k.delay
	for k.held[d] > 0 && !k.closed {
		k.changed.Wait()
	}
	closed := k.closed
	k.mu.Unlock()
	if !closed && delay > 0 {
		time.Sleep(delay)
	}
	return !closed
}

// hold lets nothing pass in some directions until release is called.
func (k *link) hold(d Directions) (release func()) {
	k.change(d, 1)
	return func() { k.change(d, -1) }
}

func (k *link) change(d Directions, by int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, one := range []Directions{Forth, Back} {
		if d == one || d == Both {
			k.held[one] += by
		}
	}
	k.changed.Broadcast()
}

// slow delays each piece in both directions; 0 ends that.
func (k *link) slow(delay time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.delay = delay
}

// add notes a connection; false if the link is closed.
func (k *link) add(c net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.closed {
		k.conns[c] = struct{}{}
	}
	return !k.closed
}

func (k *link) drop(c net.Conn) {
	_ = c.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.conns, c)
}

// close ends the link and its connections.
func (k *link) close() {
	_ = k.listener.Close()
	k.mu.Lock()
	k.closed = true
	for c := range k.conns {
		_ = c.Close()
	}
	k.changed.Broadcast()
	k.mu.Unlock()
	k.wg.Wait()
}

// A link passes bytes, holds them in one direction, and passes them when it is released.
func TestLink(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	k := newLink(t, l.Addr().String())
	near, err := net.Dial("tcp", k.address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = near.Close() })
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = far.Close() })
	say := func(from, to net.Conn, text string, within time.Duration) bool {
		t.Helper()
		if _, err := io.WriteString(from, text); err != nil {
			t.Fatal(err)
		}
		_ = to.SetReadDeadline(time.Now().Add(within))
		got := make([]byte, len(text))
		_, err := io.ReadFull(to, got)
		return err == nil && string(got) == text
	}
	if !say(near, far, "one", time.Minute) || !say(far, near, "two", time.Minute) {
		t.Fatal("the link passes nothing")
	}
	release := k.hold(Forth)
	if say(near, far, "three", 50*time.Millisecond) {
		t.Error("a held direction passes bytes")
	}
	if !say(far, near, "four", time.Minute) {
		t.Error("the other direction passes nothing")
	}
	release()
	_ = far.SetReadDeadline(time.Now().Add(time.Minute))
	got := make([]byte, len("three"))
	if _, err := io.ReadFull(far, got); err != nil || string(got) != "three" {
		t.Errorf("after the release came %q, %v", got, err)
	}
}
