package bench

import (
	"fmt"
	"log/slog"
	"math"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/stream"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// These tests compare the CPU time of one thread for two variants that alternate within one run, by the best of many
// rounds of each. The bounds are about twice the measured ratios. A busy machine makes both slower, but not equally, so
// only "make bench" runs them.

// ratiosEnv makes the tests run.
const ratiosEnv = "COPILOT_GRPC_RATIOS"

// threadCPU is what the thread has used; the goroutine must be locked to it.
func threadCPU(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}

// best runs things by turns and returns the least CPU time that each took.
func best(t *testing.T, rounds int, things ...func()) []float64 {
	t.Helper()
	if os.Getenv(ratiosEnv) == "" {
		t.Skip(ratiosEnv + " is not set: make bench sets it")
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	out := make([]float64, len(things))
	for round := range rounds {
		for i, thing := range things {
			before := threadCPU(t)
			thing()
			if took := float64(threadCPU(t) - before); round == 0 || took < out[i] {
				out[i] = took
			}
		}
	}
	return out
}

// ingested has events go from their frames into a journal and out of it for readers.
type ingested struct {
	t       *testing.T
	j       *journal.Journal
	names   event.Names
	readers []*journal.Reader
	records []*journal.Record
	wires   [][]byte
	n       int
}

func newIngested(t *testing.T, c *wire.Codec, readers int) *ingested {
	t.Helper()
	in := &ingested{t: t, j: journal.New(journal.Config{Epoch: 1, Encode: c.Event}), names: event.Names{}}
	for range readers {
		r, err := in.j.NewReader(journal.Position{}, true, func() {})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Close)
		in.readers = append(in.readers, r)
	}
	return in
}

// take takes n events, and has every reader read them in batches.
func (in *ingested) take(n int) {
	const digits, batch = "3f6f2f3c9a11", 16
	frame := []byte(deltaFrame)
	at := len(deltaFrame) - len(deltaEvent) - 2
	for i := range deltaEvent {
		if i+len(digits) <= len(deltaEvent) && deltaEvent[i:i+len(digits)] == digits {
			at += i
			break
		}
	}
	for i := range n {
		copy(frame[at:], fmt.Appendf(nil, "%012x", in.n))
		in.n++
		f, err := translate.ScanFrame(frame)
		if err != nil {
			in.t.Fatal(err)
		}
		if !in.j.Append(event.Record(f.Event, append([]byte(nil), f.Event.Raw...), in.names)) {
			in.t.Fatalf("event %d was taken for a copy", in.n)
		}
		if i%batch != batch-1 {
			continue
		}
		for _, r := range in.readers {
			in.records, _ = r.Next(in.records[:0], stream.BatchBytes)
			in.wires = in.j.Wire(in.wires[:0], in.records, journal.Tidy)
			if len(in.wires) != batch {
				in.t.Fatalf("%d events, want %d", len(in.wires), batch)
			}
		}
	}
}

// An event's way through the bridge costs a few times what its translation alone does, and
// a reader more next to nothing.
func TestIngestAgainstTranslation(t *testing.T) {
	c := wire.New(slog.New(slog.DiscardHandler))
	table, err := c.Table((*cliv1.SessionEvent)(nil).ProtoReflect().Descriptor())
	if err != nil {
		t.Fatal(err)
	}
	const events = 3200
	one, many := newIngested(t, c, 1), newIngested(t, c, 65)
	var buffer []byte
	got := best(t, 20,
		func() {
			for range events {
				if buffer, err = table.AppendWire(buffer[:0], []byte(deltaEvent), translate.Tidy); err != nil {
					t.Fatal(err)
				}
			}
		},
		func() { one.take(events) },
		func() { many.take(events) },
	)
	translation := got[0]
	if ratio := got[1] / translation; ratio > 9 {
		t.Errorf("an event costs %.1f translations", ratio)
	}
	if ratio := (got[2] - got[1]) / 64 / translation; ratio > 0.3 {
		t.Errorf("a further reader costs %.2f translations for each event", ratio)
	}
	t.Logf("an event costs %.2f translations of %.0f ns, a further reader %.3f", got[1]/translation, translation/events,
		(got[2]-got[1])/64/translation)
}

// The cost of an event does not depend on the earlier events of its session.
func TestHistoryCostsNothing(t *testing.T) {
	c := wire.New(slog.New(slog.DiscardHandler))
	const events = 1600
	long := newIngested(t, c, 1)
	short := math.Inf(1)
	for range 20 { // each begins anew
		fresh := newIngested(t, c, 1)
		short = min(short, best(t, 1, func() { fresh.take(events) })[0])
	}
	long.take(100_000)
	got := best(t, 20, func() { long.take(events) })[0]
	if got > 3*short {
		t.Errorf("an event costs %.0f ns in a long session, %.0f ns in a new one", got/events, short/events)
	}
	t.Logf("an event costs %.0f ns in a long session, %.0f ns in a new one", got/events, short/events)
}
