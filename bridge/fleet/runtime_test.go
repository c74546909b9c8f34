package fleet_test

import (
	"bufio"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/store"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// flood is the connection of a fake CLI into which a test inserts events.
type flood struct {
	io.ReadWriteCloser
	mu  sync.Mutex // a frame is written whole
	out *io.PipeWriter
	in  *io.PipeReader
}

func newFlood(cli io.ReadWriteCloser) *flood {
	f := &flood{ReadWriteCloser: cli}
	f.in, f.out = io.Pipe()
	go f.pass()
	return f
}

// pass passes on what the CLI itself says, a frame at a time.
func (f *flood) pass() {
	from := bufio.NewReader(f.ReadWriteCloser)
	for {
		head, err := from.ReadString('\n')
		length := 0
		if err == nil {
			_, err = fmt.Sscanf(head, "Content-Length: %d", &length)
		}
		frame := make([]byte, len(head)+2+length)
		if err == nil {
			copy(frame, head)
			_, err = io.ReadFull(from, frame[len(head):])
		}
		if err == nil {
			err = f.write(frame)
		}
		if err != nil {
			_ = f.out.CloseWithError(io.EOF)
			return
		}
	}
}

func (f *flood) write(frame []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.out.Write(frame)
	return err
}

// Read implements io.Reader.
func (f *flood) Read(p []byte) (int, error) { return f.in.Read(p) }

// Close implements io.Closer.
func (f *flood) Close() error {
	_ = f.in.Close()
	return f.ReadWriteCloser.Close()
}

// pour has the CLI say so many durable events, as fast as they are read.
func (f *flood) pour(id string, from, events, size int) error {
	text := strings.Repeat("x", size)
	for n := from; n < from+events; n++ {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","method":"session.event","params":{"sessionId":%q,"event":{"type":"assistant.message",`+
			`"data":{"messageId":"m%d","content":%q},"id":"00000000-0000-4000-8000-%012x","timestamp":"2026-01-02T03:04:05.678Z","parentId":null}}}`, id, n, text, n)
		if err := f.write(fmt.Appendf(nil, "Content-Length: %d\r\n\r\n%s", len(body), body)); err != nil {
			return err
		}
	}
	return nil
}

// flooded is a bridge whose CLI floods it, on a disk in memory.
type flooded struct {
	*bridgetest.Bridge
	disk  *faultfs.FS
	flood *flood
}

func newFlooded(t *testing.T, patience time.Duration) *flooded {
	t.Helper()
	f := &flooded{disk: &faultfs.FS{}}
	data := t.TempDir()
	if err := f.disk.MkdirAll(filepath.Join(data, "sessions")); err != nil {
		t.Fatal(err)
	}
	kept, err := store.Open(store.Config{Dir: data, Journals: journal.WriterConfig{FS: f.disk, Patience: patience}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kept.Close() }) // after the bridge
	f.Bridge = bridgetest.New(t, fakecli.Script{}, func(c *bridgetest.Options) { c.Directory = kept },
		bridgetest.Connection(func(cli io.ReadWriteCloser) io.ReadWriteCloser {
			f.flood = newFlood(cli)
			return f.flood
		}))
	f.Create("s1")
	return f
}

// delivered reads messages of the flood until the last one, and returns how many came, in
// order, and the gaps.
func (f *flooded) delivered(s *bridgetest.Stream, last int) (messages int, gaps []*bridgev1.Gap) {
	f.T.Helper()
	before := -1
	for before < last {
		r := s.Next()
		if gap := r.GetGap(); gap.GetReason() == bridgev1.GapReason_GAP_REASON_TRIMMED {
			gaps = append(gaps, gap)
		}
		for _, e := range r.GetEvents().GetEvents() {
			m, n := e.GetEvent().GetAssistantMessage(), 0
			if m == nil || !strings.HasPrefix(m.GetContent(), "x") {
				continue
			}
			if _, err := fmt.Sscanf(m.GetMessageId(), "m%d", &n); err != nil || n <= before {
				f.T.Fatalf("message %q comes after message %d", m.GetMessageId(), before)
			}
			before = n
			messages++
		}
	}
	return messages, gaps
}

// holds waits for something that may take long on a busy machine.
func (f *flooded) holds(what string, is func() bool) {
	f.T.Helper()
	tick, deadline := time.NewTicker(10*time.Millisecond), time.After(3*time.Minute)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			f.T.Fatalf("waited in vain for %s", what)
		}
	}
}

// metric returns a metric of the bridge.
func (f *flooded) metric(figure *observe.Figure, label string) (value int64) {
	f.Metrics(func(of *observe.Figure, with string, n int64) {
		if of == figure && with == label {
			value = n
		}
	})
	return value
}

// stats are the figures of the connection to the CLI.
func (f *flooded) stats(t *testing.T) rpcconn.Stats {
	t.Helper()
	rt, err := f.Fleet().First(f.Context(), runtime.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	return rt.Process().Conn().Stats()
}

// problem is what the session says of its journal.
func (f *flooded) problem() string {
	f.T.Helper()
	got, err := f.Sessions.GetSession(f.Context(), &bridgev1.GetSessionRequest{SessionId: "s1"})
	if err != nil {
		f.T.Fatal(err)
	}
	return got.GetSession().GetStorageProblem()
}

// A CLI that says far more than a slow disk takes is read more slowly: every event is
// delivered, memory stays bounded, nothing is wrong with the journal, and who asks something
// of that CLI meanwhile is answered.
func TestSlowDiskSlowsTheCLI(t *testing.T) {
	t.Parallel()
	f := newFlooded(t, 10*time.Minute)
	f.Create("s2")
	f.disk.Throttle(8 << 20)
	s := f.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1")})
	n := 0
	for _, size := range []int{4 << 10, 20 << 10} {
		release := f.disk.Stall() // so that it is slower than the CLI, however slow the machine is
		t.Cleanup(release)
		events := 16 << 20 / size
		go func(from int) { _ = f.flood.pour("s1", from, events, size) }(n)
		f.holds("the CLI to be held up", func() bool { return f.stats(t).Throttling && f.metric(observe.JournalMemory, "") > 8<<20 })
		if used := f.metric(observe.JournalMemory, ""); used > 14<<20 {
			t.Errorf("%d MiB are in memory", used>>20)
		}
		release()
		if got, gaps := f.delivered(s, n+events-1); got != events || len(gaps) > 0 {
			t.Errorf("of %d events of %d bytes %d are delivered; gaps are %v", events, size, got, gaps)
		}
		n += events
	}
	if f.stats(t).Throttled == 0 {
		t.Error("the CLI was never held up")
	}
	go func() { _ = f.flood.pour("s1", n, 500, 20<<10) }()
	if out := f.Ask("s2", "hi"); out.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Errorf("another session of that CLI ends its turn with %v", out)
	}
	f.delivered(s, n+499)
	f.disk.Throttle(0)
	f.holds("the journal to be in step", func() bool { return f.problem() == "" }) // it was stalled for a while
	if given := f.metric(observe.EventsDropped, "unwritten"); given > 0 {
		t.Errorf("%d events were given up", given)
	}
	s.Stop()
}

// A disk that hangs blocks a CLI only for a bounded time. Then the session continues in memory, reports the
// problem, and readers receive a gap for lost events.
func TestDiskThatDoesNotMove(t *testing.T) {
	t.Parallel()
	f := newFlooded(t, 300*time.Millisecond)
	f.Ask("s1", "hi")
	release := f.disk.Stall()
	t.Cleanup(release)
	s := f.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1")})
	const events, size = 2500, 20 << 10
	go func() { _ = f.flood.pour("s1", 0, events, size) }()
	f.holds("the session to say what is wrong", func() bool { return f.problem() == journal.ErrBacklog.Error() })
	s.Stop()
	late := f.Subscribe(&bridgev1.SubscribeRequest{Sessions: bridgetest.Cursors("s1")})
	got, gaps := f.delivered(late, events-1)
	if got == events || got < 100 || len(gaps) == 0 {
		t.Errorf("%d of %d events are delivered; gaps are %v", got, events, gaps)
	}
	release()
	f.holds("the journal to be in step again", func() bool { return f.problem() == "" })
	late.Stop()
}
