package rpcconn

import (
	"errors"
	"io"
	"net"
	"os"
	stdruntime "runtime"
	"slices"
	"testing"
	"time"
)

// pieces is a stream that gives one piece with each read, and then ends.
type pieces [][]byte

func (p *pieces) Read(b []byte) (int, error) {
	if len(*p) == 0 {
		return 0, io.EOF
	}
	n := copy(b, (*p)[0])
	*p = (*p)[1:]
	return n, nil
}

func (p *pieces) Write(b []byte) (int, error) { return len(b), nil }
func (p *pieces) Close() error                { return nil }

// However a stream goes on or ends, nothing that was handed on is left without a pause.
func TestPause(t *testing.T) {
	t.Parallel()
	event := func(name string) string {
		return string(framed(string(eventPrefix) + `"e":"` + name + `"` + string(eventSuffix)))
	}
	long := event(string(make([]byte, readBufferSize)))
	for name, tc := range map[string]struct {
		in   pieces
		want string
	}{
		"one in each":    {pieces{[]byte(event("1")), []byte(event("2"))}, "|e|e|"},
		"two at once":    {pieces{[]byte(event("1") + event("2"))}, "|ee|"},
		"one and a half": {pieces{[]byte(event("1") + event("2")[:30]), []byte(event("2")[30:])}, "|e|e|"},
		"a long one": {pieces{[]byte(event("1") + long[:1000]), []byte(long[1000:40_000]),
			[]byte(long[40_000:])}, "|e|e|"},
		"nonsense after one": {pieces{[]byte(event("1") + "nonsense\r\n\r\n")}, "|e|"},
	} {
		var got []byte
		c := New(&tc.in,
			Options{Event: func([]byte) { got = append(got, 'e') }, Pause: func() { got = append(got, '|') }})
		<-c.Done()
		c.Wait()
		if string(slices.CompactFunc(got, func(a, b byte) bool { return a == '|' && a == b })) != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// Throttle holds up the reading, and with it the peer, and ends with the connection.
func TestThrottle(t *testing.T) {
	t.Parallel()
	theirs, ours := net.Pipe()
	events := make(chan struct{}, 10)
	free := make(chan struct{}, 1)
	free <- struct{}{}
	c := New(ours, Options{
		Event: func([]byte) { events <- struct{}{} },
		Throttle: func(over <-chan struct{}) bool {
			select {
			case <-free:
				return false
			case <-over:
				return true
			}
		},
	})
	one := framed(string(eventPrefix) + `"e":1` + string(eventSuffix))
	if _, err := theirs.Write(one); err != nil {
		t.Fatal(err)
	}
	<-events
	for !c.Stats().Throttling {
		stdruntime.Gosched()
	}
	_ = theirs.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	if n, err := theirs.Write(one); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes were read from a peer that is held up, %v", n, err)
	}
	_ = c.Close()
	c.Wait()
	if s := c.Stats(); s.Throttled != 1 || s.Throttling || s.Events != 1 {
		t.Errorf("closed: %+v", s)
	}
}
