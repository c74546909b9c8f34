package natslog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natstest"
)

// faulty is a JetStream whose publications pass through a function.
type faulty struct {
	jetstream.JetStream

	publish func(next func() (*jetstream.PubAck, error)) (*jetstream.PubAck, error)
}

func (f *faulty) PublishMsg(ctx context.Context, m *nats.Msg, o ...jetstream.PublishOpt) (*jetstream.PubAck, error) {
	next := func() (*jetstream.PubAck, error) { return f.JetStream.PublishMsg(context.WithoutCancel(ctx), m, o...) }
	if f.publish == nil {
		return next()
	}
	return f.publish(next)
}

var errFault = errors.New("a fault of the test")

// ackLost stores the message; the caller does not learn of it.
func ackLost(next func() (*jetstream.PubAck, error)) (*jetstream.PubAck, error) {
	if _, err := next(); err != nil {
		return nil, err
	}
	return nil, errFault
}

// messageLost does not store the message.
func messageLost(func() (*jetstream.PubAck, error)) (*jetstream.PubAck, error) { return nil, errFault }

func numbered(numbers ...uint64) (out []backend.Entry) {
	for _, n := range numbers {
		out = append(out, backend.Entry{Number: n, Body: fmt.Appendf(nil, "entry %d", n)})
	}
	return out
}

// openFaulty opens a log whose publications can have faults.
func openFaulty(t *testing.T, partBytes int) (*Logs, *log, *faulty) {
	t.Helper()
	logs := testLogs(t, natstest.Start(t), partBytes)
	f := &faulty{JetStream: logs.cfg.Stream.JetStream}
	cfg := logs.cfg
	cfg.Stream.JetStream = f
	opened, _, err := New(cfg).Open("s", 1, 7, func(uint64, []byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return logs, opened.(*log), f
}

// wantEntries checks what a log has, and what the next owner finds.
func wantEntries(t *testing.T, logs *Logs, l *log, want ...uint64) {
	t.Helper()
	check := func(name string, got []uint64, err error) {
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s has the entries %d, %v; want %d", name, got, err, want)
		}
	}
	var got []uint64
	err := l.Read(0, func(n uint64, _ []byte) bool { got = append(got, n); return true })
	check("the log", got, err)
	got = nil
	_, _, err = logs.Open("s", l.term+1, 99, func(n uint64, _ []byte) error { got = append(got, n); return nil })
	check("the next owner", got, err)
}

func TestLostAcknowledgement(t *testing.T) {
	t.Parallel()
	logs, l, f := openFaulty(t, 0)
	f.publish = ackLost
	if err := l.Append(0, numbered(1, 2)); !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	f.publish = nil
	if err := l.Append(0, numbered(1, 2)); !errors.Is(err, errLate) || l.Last() != 2 {
		t.Errorf("the entries were stored, the last one is %d; trying again gives %v", l.Last(), err)
	}
	if err := l.Append(2, numbered(3)); err != nil {
		t.Error(err)
	}
	wantEntries(t, logs, l, 1, 2, 3)
}

func TestLostMessage(t *testing.T) {
	t.Parallel()
	logs, l, f := openFaulty(t, 0)
	f.publish = messageLost
	if err := l.Append(0, numbered(1, 2)); !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	f.publish = nil
	if err := l.Append(0, numbered(1, 2, 3)); err != nil {
		t.Error(err)
	}
	wantEntries(t, logs, l, 1, 2, 3)
}

// A message of the log arrives after the log has looked for it, in front of the next change.
func TestLateMessage(t *testing.T) {
	t.Parallel()
	logs, l, f := openFaulty(t, 0)
	var late func() (*jetstream.PubAck, error)
	f.publish = func(next func() (*jetstream.PubAck, error)) (*jetstream.PubAck, error) {
		late = next
		return nil, errFault
	}
	if err := l.Append(0, numbered(1)); !errors.Is(err, errFault) {
		t.Fatal(err)
	}
	f.publish = func(next func() (*jetstream.PubAck, error)) (*jetstream.PubAck, error) {
		f.publish = nil
		if _, err := late(); err != nil {
			t.Error(err)
		}
		return next()
	}
	if err := l.Append(0, numbered(1, 2)); !errors.Is(err, errLate) || l.Last() != 1 {
		t.Errorf("behind the late message, with the last entry %d: %v", l.Last(), err)
	}
	if err := l.Append(1, numbered(2)); err != nil {
		t.Error(err)
	}
	wantEntries(t, logs, l, 1, 2)
}

// A change of several messages that ends in the middle is as if it had not begun, for its owner and for the next one.
func TestUnfinishedChanges(t *testing.T) {
	t.Parallel()
	changes := map[string]func(*log) error{
		"append":  func(l *log) error { return l.Append(2, numbered(3, 4)) },
		"replace": func(l *log) error { return l.Replace(8, numbered(1)) },
	}
	faults := map[string]func(func() (*jetstream.PubAck, error)) (*jetstream.PubAck, error){
		"acknowledgement": ackLost, "message": messageLost,
	}
	for name, change := range changes {
		for what, fault := range faults {
			t.Run(name+", lost "+what, func(t *testing.T) {
				t.Parallel()
				logs, l, f := openFaulty(t, maxHead+4)
				if err := l.Append(0, numbered(1, 2)); err != nil {
					t.Fatal(err)
				}
				parts := 0
				f.publish = func(next func() (*jetstream.PubAck, error)) (*jetstream.PubAck, error) {
					if parts++; parts == 2 {
						return fault(next)
					}
					return next()
				}
				if err := change(l); !errors.Is(err, errFault) || parts != 2 || l.Epoch() != 7 {
					t.Fatalf("after %d parts, in epoch %d: %v", parts, l.Epoch(), err)
				}
				f.publish = nil
				wantEntries(t, logs, l, 1, 2)
				if err := l.Append(2, numbered(3)); !errors.Is(err, backend.ErrStale) {
					t.Errorf("the owner before writes: %v", err)
				}
			})
			t.Run(name+", tried again after a lost "+what, func(t *testing.T) {
				t.Parallel()
				logs, l, f := openFaulty(t, maxHead+4)
				if err := l.Append(0, numbered(1, 2)); err != nil {
					t.Fatal(err)
				}
				parts := 0
				f.publish = func(next func() (*jetstream.PubAck, error)) (*jetstream.PubAck, error) {
					if parts++; parts == 2 {
						return fault(next)
					}
					return next()
				}
				if err := change(l); !errors.Is(err, errFault) {
					t.Fatal(err)
				}
				if err := change(l); err != nil {
					t.Fatal(err)
				}
				want := []uint64{1, 2, 3, 4}
				if name == "replace" {
					want = []uint64{1}
				}
				wantEntries(t, logs, l, want...)
			})
		}
	}
}

// An entry that is larger than a message of the server, and more messages than one answer has.
func TestLargeLog(t *testing.T) {
	t.Parallel()
	logs, l, _ := openFaulty(t, 0)
	large := bytes.Repeat([]byte("0123456789abcdef"), 3<<20/16)
	if err := l.Append(0, []backend.Entry{{Number: 1, Head: []byte("h"), Body: large}}); err != nil {
		t.Fatal(err)
	}
	want := []uint64{1}
	for n := uint64(2); n < 1000; n++ {
		if err := l.Append(n-1, numbered(n)); err != nil {
			t.Fatal(err)
		}
		want = append(want, n)
	}
	err := l.Read(0, func(n uint64, body []byte) bool {
		if n == 1 && !bytes.Equal(body, append([]byte("h"), large...)) {
			t.Errorf("the large entry has %d bytes", len(body))
		}
		return n < 1
	})
	if err != nil {
		t.Error(err)
	}
	wantEntries(t, logs, l, want...)
}

// While the server is away, changes fail and nothing is lost; reading waits for it.
func TestServerAwayAndBack(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	logs := testLogs(t, server, 0)
	logs.stream.Timeout = 200 * time.Millisecond
	opened, _, err := logs.Open("s", 1, 7, func(uint64, []byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := opened.Append(0, numbered(1)); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	if err := opened.Append(1, numbered(2)); err == nil || errors.Is(err, backend.ErrStale) {
		t.Fatalf("without a server: %v", err)
	}
	back := make(chan struct{})
	go func() {
		defer close(back)
		server.Start()
	}()
	var got []uint64
	err = opened.Read(0, func(n uint64, _ []byte) bool { got = append(got, n); return true })
	if err != nil || len(got) < 1 {
		t.Errorf("reading gives %d, %v", got, err)
	}
	<-back
	for opened.Last() < 2 { // the test's own limit ends it
		if err := opened.Append(opened.Last(), numbered(2)); errors.Is(err, backend.ErrStale) {
			t.Fatal(err)
		}
	}
	wantEntries(t, logs, opened.(*log), 1, 2)
}
