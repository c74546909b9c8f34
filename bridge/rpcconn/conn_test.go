package rpcconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Replies take effect exactly where they stand among events and notifications.
func TestOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var seen []string // reader goroutine only, until it is idle
		c, p := start(t, Options{
			Event:        func(body []byte) { seen = append(seen, string(body)) },
			Notification: func(method string, params []byte) { seen = append(seen, method+string(params)) },
		})
		done := call(t.Context(), c, "m", `{}`, OnReply(func() { seen = append(seen, "reply") }))
		id, _ := p.receiveCall()
		failing := call(t.Context(), c, "m", `{}`, OnReply(func() { seen = append(seen, "error reply") }))
		failingID, _ := p.receiveCall()

		odd := `{"params":{"event":{"type":"t"}},"method":"session\u002eevent","jsonrpc":"2.0"}`
		batch := append(framed(event(1)), framed(event(2))...)
		batch = append(batch, framed(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":1}`, id))...)
		batch = append(batch, framed(event(3))...)
		batch = append(batch, framed(`{"jsonrpc":"2.0","method":"session.lifecycle","params":{"b":1,"a":2}}`)...)
		batch = append(batch, framed(fmt.Sprintf(`{"error":{"code":1,"message":""},"id":%d}`, failingID))...)
		batch = append(batch, framed(odd)...)
		batch = append(batch, framed(`{"method":"bare"}`)...)
		if _, err := p.conn.Write(batch); err != nil {
			t.Fatal(err)
		}
		<-done
		<-failing
		synctest.Wait()
		want := []string{event(1), event(2), "reply", event(3), `session.lifecycle{"b":1,"a":2}`, "error reply", odd, "bare"}
		if !equal(seen, want) {
			t.Errorf("got %q\nwant %q", seen, want)
		}
		if s := c.Stats(); s.Events != 4 || s.Notifications != 2 || s.Replies != 2 || s.FramesIn != 8 {
			t.Errorf("stats: %+v", s)
		}
	})
}

func TestMalformedMessagesAreSkipped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		events := 0
		c, p := start(t, Options{Event: func([]byte) { events++ }})
		for _, body := range []string{``, `[]`, `{`, `"x"`, `{"method":7}`, `{"method":"\x"}`} {
			p.send(body)
		}
		p.send(event(1))
		synctest.Wait()
		if s := c.Stats(); s.Malformed != 6 || events != 1 || c.Err() != nil {
			t.Errorf("malformed %d, events %d, err %v", s.Malformed, events, c.Err())
		}
	})
}

func TestCloseCauses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		end  func(c *Conn, p *peer)
		want error
	}{
		"local":     {func(c *Conn, _ *peer) { _ = c.Close() }, ErrLocalClose},
		"peer":      {func(_ *Conn, p *peer) { _ = p.conn.Close() }, ErrPeerClosed},
		"truncated": {func(_ *Conn, p *peer) { _, _ = p.conn.Write([]byte("Content-Length: 5\r\n\r\n{")); _ = p.conn.Close() }, ErrTruncated},
		"too large": {func(_ *Conn, p *peer) { _, _ = p.conn.Write([]byte("Content-Length: 101\r\n\r\n")) }, ErrFrameTooLarge},
		"garbage":   {func(_ *Conn, p *peer) { _, _ = p.conn.Write([]byte("hello\r\n\r\n")) }, ErrBadFrame},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, p := start(t, Options{MaxFrame: 100, MaxInFlight: 1})
			if c.Err() != nil {
				t.Errorf("open connection has error %v", c.Err())
			}
			inFlight := call(t.Context(), c, "m", `{}`)
			p.receiveCall()
			waiting := call(t.Context(), c, "m", `{}`)
			tc.end(c, p)
			<-c.Done()
			for what, err := range map[string]error{"conn": c.Err(), "written": (<-inFlight).err, "waiting": (<-waiting).err, "notify": c.Notify(t.Context(), "n", nil)} {
				var closed *CloseError
				if !errors.Is(err, ErrClosed) || !errors.Is(err, tc.want) || !errors.As(err, &closed) {
					t.Errorf("%s: %v, want %v", what, err, tc.want)
				}
				if errors.Is(err, ErrNotSent) != (what == "waiting" || what == "notify") {
					t.Errorf("%s: wrong about whether it was sent: %v", what, err)
				}
			}
			c.Wait()
			if n := c.Stats().InFlight; n != 0 {
				t.Errorf("%d calls left", n)
			}
		})
	}
}

// oneWay reads from one pipe and fails to write.
type oneWay struct {
	net.Conn
	err error
}

func (o oneWay) Write([]byte) (int, error) { return 0, o.err }

// Messages that the peer sent before its end are delivered after a failed write.
func TestWriteFailure(t *testing.T) {
	t.Parallel()
	for name, peerEnds := range map[string]bool{"peer ends": true, "peer lingers": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				mine, theirs := net.Pipe()
				defer theirs.Close()
				broken := errors.New("broken pipe")
				events := 0
				c := New(oneWay{mine, broken}, Options{Event: func([]byte) { events++ }, DrainGrace: time.Second})
				begin := time.Now()
				done := call(t.Context(), c, "m", `{}`)
				synctest.Wait()
				if _, err := c.Call(t.Context(), "m", nil); !errors.Is(err, ErrWriteFailed) || !errors.Is(err, ErrNotSent) {
					t.Errorf("call after the failure: %v", err)
				}
				if _, err := theirs.Write(framed(event(1))); err != nil {
					t.Fatal(err)
				}
				if peerEnds {
					_ = theirs.Close()
				}
				c.Wait()
				if err := (<-done).err; !errors.Is(err, ErrWriteFailed) || !errors.Is(err, broken) || errors.Is(err, ErrNotSent) {
					t.Errorf("pending call: %v", err)
				}
				if events != 1 {
					t.Errorf("%d events, want 1", events)
				}
				if took := time.Since(begin); (took == 0) != peerEnds || took > time.Second {
					t.Errorf("closed after %v", took)
				}
			})
		})
	}
}

// halfPipe can end one direction, as a child's stdin and stdout can.
type halfPipe struct {
	*io.PipeReader
	*io.PipeWriter
}

func (h halfPipe) Close() error {
	_ = h.PipeReader.Close()
	return h.PipeWriter.Close()
}

func (h halfPipe) CloseWrite() error { return h.PipeWriter.Close() }

func TestCloseWrite(t *testing.T) {
	t.Parallel()
	fromPeer, peerWrites := io.Pipe()
	peerReads, toPeer := io.Pipe()
	c := New(halfPipe{fromPeer, toPeer}, Options{})
	if err := c.Notify(t.Context(), "last", nil); err != nil {
		t.Fatal(err)
	}
	c.CloseWrite()
	if _, err := c.Call(t.Context(), "m", nil); !errors.Is(err, ErrLocalClose) || !errors.Is(err, ErrNotSent) {
		t.Errorf("call after CloseWrite: %v", err)
	}
	if got, end := readAll(peerReads, 100); !equal(got, []string{`{"jsonrpc":"2.0","method":"last"}`}) || !errors.Is(end, ErrPeerClosed) {
		t.Errorf("peer read %q, %v", got, end)
	}
	if c.Err() != nil {
		t.Errorf("closed too early: %v", c.Err())
	}
	_ = peerWrites.Close()
	c.Wait()
	if !errors.Is(c.Err(), ErrPeerClosed) {
		t.Errorf("ended with %v", c.Err())
	}
}

// Callbacks on the reader goroutine may use the connection.
func TestCloseFromCallback(t *testing.T) {
	t.Parallel()
	var c *Conn
	ready := make(chan struct{})
	c, p := start(t, Options{Event: func([]byte) {
		<-ready
		_ = c.Notify(context.Background(), "n", nil)
		_ = c.Close()
	}})
	close(ready)
	p.send(event(1))
	c.Wait()
	if !errors.Is(c.Err(), ErrLocalClose) {
		t.Errorf("ended with %v", c.Err())
	}
}

// looped gives the same bytes again and again, so that a measurement has no
// writer in it.
type looped struct {
	data  []byte
	at    int
	stop  chan struct{}
	count atomic.Int64
	limit int64
}

func (l *looped) Read(p []byte) (int, error) {
	if l.count.Load() >= l.limit {
		<-l.stop
		return 0, io.EOF
	}
	n := copy(p, l.data[l.at:])
	l.at = (l.at + n) % len(l.data)
	return n, nil
}
func (l *looped) Write(p []byte) (int, error) { return len(p), nil }
func (l *looped) Close() error                { return nil }

// feed runs the event path for n events and waits for the last.
func feed(tb testing.TB, body string, n int64) {
	src := &looped{stop: make(chan struct{}), limit: n}
	for range 50 {
		src.data = append(src.data, framed(body)...)
	}
	finished := make(chan struct{})
	c := New(src, Options{Event: func([]byte) {
		if src.count.Add(1) == n {
			close(finished)
		}
	}})
	<-finished
	close(src.stop)
	c.Wait()
	if got := c.Stats().Events; got < uint64(n) {
		tb.Fatalf("%d events, want %d", got, n)
	}
}

// An event costs no allocation on its way to Event.
func TestEventPathDoesNotAllocate(t *testing.T) {
	const events = 20_000
	setup := testing.AllocsPerRun(3, func() { feed(t, event(1), 1) })
	total := testing.AllocsPerRun(3, func() { feed(t, event(1), events) })
	if perEvent := (total - setup) / events; perEvent > 0.001 {
		t.Errorf("%.4f allocations per event", perEvent)
	}
}

func BenchmarkEvents(b *testing.B) {
	for _, size := range []int{0, 600, 3700, 20_000, 200_000} {
		pad := make([]byte, size)
		for i := range pad {
			pad[i] = 'x'
		}
		body := `{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":"0195f0ab-0000-7000-8000-000000000000","event":{"type":"assistant.message_delta","data":{"deltaContent":"` + string(pad) + `"},"ephemeral":true,"id":"7dbc518a-0000-4000-8000-000000000000","timestamp":"2026-11-20T22:07:11.958Z","parentId":"36458d56-0000-4000-8000-000000000000"}}}`
		b.Run(fmt.Sprintf("%d_bytes", len(body)), func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			feed(b, body, int64(b.N))
		})
	}
}

func BenchmarkCall(b *testing.B) {
	mine, theirs := net.Pipe()
	c := New(mine, Options{})
	echo := New(theirs, Options{Request: echoRequest})
	defer func() { _ = c.Close(); c.Wait(); echo.Wait() }()
	params := []byte(`{"sessionId":"0195f0ab-0000-7000-8000-000000000000","requestId":"r","result":{"kind":"approve-once"}}`)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Call(b.Context(), "m", params); err != nil {
			b.Fatal(err)
		}
	}
}
