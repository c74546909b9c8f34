package session

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/reorder"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/reorder/reordertest"
)

var run, names = reordertest.Run, reordertest.Names

// taking is a session's ingester.
type taking struct {
	*Ingester
	of *storyteller
}

func newTaking() *taking {
	f := newStoryteller()
	return &taking{f.s.ingester, f}
}

// take takes an event as the reader of the CLI's connection does.
func (s *taking) take(rec *journal.Record) { s.of.s.Ingest(rec, time.Now()) }

// kept lists the ids in the journal.
func kept(s *taking) (ids []string) {
	s.s.journal.Each(func(rec *journal.Record) bool { ids = append(ids, reordertest.ID(rec)); return true })
	return ids
}

func wantKept(t *testing.T, s *taking, want ...string) {
	t.Helper()
	reordertest.Equal(t, kept(s), want)
}

// repeating returns an ingester that holds back events 100 to 109, after 0 to 9.
func repeating(t *testing.T) (*taking, *reordertest.Burst) {
	b, s := reordertest.New(5000, nil), newTaking()
	for _, n := range slices.Concat(run(0, 10), []int{0}, run(10, 12), run(100, 110)) {
		s.take(b.Event(n))
	}
	wantKept(t, s, names(run(0, 12))...)
	return s, b
}

// TestOrderWhileLoaded: what comes while the session is loaded is put in order, too.
func TestOrderWhileLoaded(t *testing.T) {
	t.Parallel()
	b, s := reordertest.New(350, map[int]time.Duration{300: time.Second}), newTaking()
	s.hold()
	for _, n := range slices.Concat(run(0, 10), []int{0}, run(10, 100), run(600, 620), run(100, 600), run(620, 700)) {
		s.take(b.Event(n))
	}
	s.s.mu.Lock()
	s.release()
	s.s.mu.Unlock()
	wantKept(t, s, names(run(0, 700))...)
}

// TestHeldIsBounded: however long the history takes to be read, a bounded number of events waits for it.
func TestHeldIsBounded(t *testing.T) {
	t.Parallel()
	s, now := newTaking(), time.Now()
	s.hold()
	for n := range maxHeld {
		if len(kept(s)) > 0 {
			t.Fatalf("%d events are not held back", n)
		}
		s.take(reordertest.Durable(fmt.Sprint("e", n), now))
	}
	if n := len(kept(s)); n != maxHeld {
		t.Errorf("the journal has %d events, want %d", n, maxHeld)
	}
}

// TestOrderReleased has what ends the holding back.
func TestOrderReleased(t *testing.T) {
	t.Parallel()
	now := time.Date(2031, 6, 1, 0, 0, 1, 0, time.UTC)
	early := names(slices.Concat(run(0, 12), run(100, 110)))
	for name, c := range map[string]struct {
		do   func(s *taking)
		want []string
	}{
		"durable event":  {func(s *taking) { s.take(reordertest.Durable("d", now)) }, []string{"d"}},
		"idle":           {func(s *taking) { s.take(reordertest.EventAt("session.idle", "{}", "d", now, true)) }, []string{"d"}},
		"callback":       {func(s *taking) { s.take(reordertest.EventAt("permission.requested", "{}", "d", now, true)) }, []string{"d"}},
		"title":          {func(s *taking) { s.take(reordertest.EventAt("session.title_changed", "{}", "d", now, true)) }, []string{"d"}},
		"no more events": {func(s *taking) { s.end() }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := repeating(t)
			timer := s.timer
			c.do(s)
			wantKept(t, s, append(slices.Clone(early), c.want...)...)
			if timer.Stop() {
				t.Error("the timer still runs")
			}
		})
	}
}

// TestOrderPatience: the timer gives up when nothing comes in between, and only then.
func TestOrderPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, b := repeating(t)
		var said strings.Builder
		s.of.log = slog.New(slog.NewTextHandler(&said, nil))
		for n := 12; n < 16; n++ {
			time.Sleep(reorder.Patience - time.Millisecond)
			s.take(b.Event(n))
			s.take(b.Event(100 + n - 2)) // more early ones are no reason to wait longer
		}
		held := names(slices.Concat(run(0, 16), run(100, 114)))
		wantKept(t, s, held[:16]...)
		time.Sleep(reorder.Patience - time.Millisecond)
		synctest.Wait()
		wantKept(t, s, held[:16]...)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		wantKept(t, s, held...)
		if got := said.String(); strings.Count(got, LeftOutOfOrder) != 1 || !strings.Contains(got, "reason=pause epoch=7 after_seq=16 through_seq=30") {
			t.Errorf("the log says %q", got)
		}
		// A burst that goes on slowly is not delayed again, until the CLI repeats itself.
		s.take(b.Event(2000))
		wantKept(t, s, append(held, "e2000")...)
	})
}

// TestFollow: what an event means for its session beside the journal.
func TestFollow(t *testing.T) {
	t.Parallel()
	const ask = `{"requestId":"q1","permissionRequest":{"kind":"shell"}}`
	for name, c := range map[string]struct {
		event, data, agent string
		saved              bool
		announced, pending int
		said, turned       bool // it had a message; a turn has ended
	}{
		"a message":         {event: "user.message", saved: true, announced: 1},
		"of another agent":  {event: "user.message", agent: "a1"},
		"a title":           {event: "session.title_changed", data: `{"title":"t"}`, saved: true, announced: 1},
		"the turn's end":    {event: "session.idle", saved: true, said: true, turned: true},
		"no turn's end":     {event: "session.idle", saved: true},
		"a callback":        {event: callback.PermissionRequested, data: ask, saved: true, pending: 1},
		"a callback of one": {event: callback.PermissionRequested, data: ask, agent: "a1", saved: true, pending: 1},
		"a delta":           {event: "assistant.message_delta"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTaking()
			rec := &journal.Record{Type: c.event, Agent: c.agent, JSON: fmt.Appendf(nil, `{"type":%q,"data":%s}`, c.event, cmp.Or(c.data, "{}"))}
			s.Known.HasHistory = c.said
			s.take(rec)
			pending := s.s.callbacks.Registry().Len()
			saved, announced := s.of.saved > 0, len(s.of.done)
			if saved != c.saved || announced != c.announced || pending != c.pending || s.Known.CompletedTurn != c.turned {
				t.Errorf("saved %v, announced %d, pending %d, turned %v; want %+v", saved, announced, pending, s.Known.CompletedTurn, c)
			}
			if rec.Pos.Seq != 1 || s.Known.HasHistory != (c.said || c.event == "user.message" && c.agent == "") {
				t.Errorf("position %v, history %v", rec.Pos, s.Known.HasHistory)
			}
		})
	}
}

// TestInternal: events that the bridge's own work causes are marked, also while they are held back.
func TestInternal(t *testing.T) {
	t.Parallel()
	s := newTaking()
	s.hold()
	s.Internal = true
	a := &journal.Record{Type: "a", JSON: []byte(`{}`)}
	s.take(a)
	s.Internal = false
	b := &journal.Record{Type: "b", JSON: []byte(`{}`)}
	s.take(b)
	if len(s.held) != 2 || s.s.journal.Last().Seq != 0 {
		t.Errorf("%d held, last %v", len(s.held), s.s.journal.Last())
	}
	s.release()
	if s.reading || !a.Bridge || b.Bridge || b.Pos.Seq != 2 {
		t.Errorf("holding %v, %+v, %+v", s.reading, a, b)
	}
	s.hold()
	s.take(&journal.Record{Type: "c", JSON: []byte(`{}`)})
	if s.discard(); s.reading || s.s.journal.Last().Seq != 2 {
		t.Errorf("holding %v, last %v", s.reading, s.s.journal.Last())
	}
}

// BenchmarkIngest measures slow events, and a burst of events in order.
func BenchmarkIngest(b *testing.B) {
	for name, burst := range map[string]bool{"calm": false, "burst": true} {
		b.Run(name, func(b *testing.B) {
			src := reordertest.New(4000, nil)
			recs := make([]journal.Record, 8000)
			for i := range recs {
				recs[i] = *src.Event(i)
			}
			s := newTaking()
			if burst {
				s.take(src.Event(0))
				s.take(src.Event(0)) // a second copy: a burst from here on
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				rec := recs[i%len(recs)]
				rec.ID = journal.ID{1, 15: byte(i), 14: byte(i >> 8), 13: byte(i >> 16), 12: byte(i >> 24)}
				if !burst {
					s.buffer.Reset()
				}
				s.take(&rec)
			}
		})
	}
}

// TestUsageIsCounted: the session counts what a call of a model has used.
func TestUsageIsCounted(t *testing.T) {
	t.Parallel()
	s := newStoryteller().s
	s.play("assistant.usage", `{"model":"m","inputTokens":3,"outputTokens":2}`)
	if all := s.Usage(); len(all) != 1 || all[0].Model != "m" {
		t.Errorf("it has used %+v", all)
	}
}
