package rpcconn

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// slot is a stream on which room bytes fit without waiting. Write waits for nothing, and is what the writer uses.
type slot struct {
	mu     sync.Mutex
	room   int
	err    error
	got    bytes.Buffer
	writes int // calls of Write
	closed chan struct{}
	hold   chan struct{} // Write waits for it to close; may be nil
}

func (s *slot) WriteNow(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return 0, s.err
	}
	n := min(len(b), s.room)
	s.room -= n
	s.got.Write(b[:n])
	return n, nil
}

func (s *slot) Write(b []byte) (int, error) {
	if s.hold != nil {
		<-s.hold
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	if s.err != nil {
		return 0, s.err
	}
	return s.got.Write(b)
}

func (s *slot) Read([]byte) (int, error) {
	<-s.closed
	return 0, io.EOF
}

func (s *slot) Close() error {
	close(s.closed)
	return nil
}

// A frame is written by the goroutine that sends it while the stream has room: no other goroutine has to run.
func TestFramesNeedNoWriter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slot{room: 1 << 20, closed: make(chan struct{})}
		c := New(s, Options{})
		defer c.Wait()
		defer c.Close()
		for range 3 {
			if err := c.Notify(t.Context(), "m", []byte(`{}`)); err != nil {
				t.Fatal(err)
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if n := strings.Count(s.got.String(), `"method":"m"`); n != 3 || s.writes != 0 {
			t.Errorf("%d frames were sent, the writer wrote %d times", n, s.writes)
		}
		if stats := c.Stats(); stats.FramesOut != 3 || stats.BytesOut != uint64(s.got.Len()) || stats.QueuedBytes != 0 {
			t.Errorf("stats: %+v", stats)
		}
	})
}

// Frames keep their order and their bytes whatever part of them fits at once.
func TestFramesThatDoNotFit(t *testing.T) {
	t.Parallel()
	for room := range 200 {
		synctest.Test(t, func(t *testing.T) {
			s := &slot{room: room, closed: make(chan struct{}), hold: make(chan struct{})}
			c := New(s, Options{})
			defer c.Wait()
			defer c.Close()
			var want []byte
			for _, method := range []string{"first", "second", "third"} {
				want = append(want, requestFrame(0, method, []byte(`{}`))...)
				if err := c.Notify(t.Context(), method, []byte(`{}`)); err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // the writer has begun
			}
			close(s.hold)
			c.Flush(t.Context())
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			if !bytes.Equal(s.got.Bytes(), want) {
				t.Errorf("with room for %d bytes the peer got %q, want %q", room, s.got.Bytes(), want)
			}
			stats := c.Stats()
			if stats.FramesOut != 3 || stats.BytesOut != uint64(len(want)) || stats.QueuedBytes != 0 {
				t.Errorf("with room for %d bytes: %+v", room, stats)
			}
		})
	}
}

// A write that fails ends the connection as the writer's would.
func TestFailedWriteAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &slot{err: io.ErrClosedPipe, closed: make(chan struct{})}
		c := New(s, Options{})
		_, err := c.Call(t.Context(), "m", nil)
		c.Wait()
		if !errors.Is(err, ErrWriteFailed) || !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("the call ended with %v", err)
		}
	})
}
