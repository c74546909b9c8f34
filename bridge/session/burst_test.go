package session

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/reorder"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/reorder/reordertest"
)

var run, names = reordertest.Run, reordertest.Names

func newOrdered(t *testing.T) *Session {
	return New(Config{ID: "s1", Host: &rig{t: t}, Epoch: 7, MaxEphemeralBytes: 1 << 30,
		Encode: func(*journal.Record, journal.Form) []byte { return nil }})
}

// kept lists the ids in the journal.
func kept(s *Session) (ids []string) {
	s.journal.Each(func(rec *journal.Record) bool { ids = append(ids, reordertest.ID(rec)); return true })
	return ids
}

func wantKept(t *testing.T, s *Session, want ...string) {
	t.Helper()
	reordertest.Equal(t, kept(s), want)
}

// repeating returns a session that holds back events 100 to 109, after 0 to 9.
func repeating(t *testing.T) (*Session, *reordertest.Burst) {
	b, s := reordertest.New(5000, nil), newOrdered(t)
	for _, n := range slices.Concat(run(0, 10), []int{0}, run(10, 12), run(100, 110)) {
		s.Ingest(b.Event(n))
	}
	wantKept(t, s, names(run(0, 12))...)
	return s, b
}

// TestOrderWhileLoaded: what comes while the session is loaded is put in order, too.
func TestOrderWhileLoaded(t *testing.T) {
	t.Parallel()
	b, s := reordertest.New(350, map[int]time.Duration{300: time.Second}), newOrdered(t)
	s.history.reading = true
	for _, n := range slices.Concat(run(0, 10), []int{0}, run(10, 100), run(600, 620), run(100, 600), run(620, 700)) {
		s.Ingest(b.Event(n))
	}
	s.mu.Lock()
	s.releaseHeld()
	s.mu.Unlock()
	wantKept(t, s, names(run(0, 700))...)
}

// TestOrderReleased has what ends the holding back.
func TestOrderReleased(t *testing.T) {
	t.Parallel()
	now := time.Date(2031, 6, 1, 0, 0, 1, 0, time.UTC)
	early := names(slices.Concat(run(0, 12), run(100, 110)))
	for name, c := range map[string]struct {
		do   func(s *Session)
		want []string
	}{
		"durable event":   {func(s *Session) { s.Ingest(reordertest.Durable("d", now)) }, []string{"d"}},
		"idle":            {func(s *Session) { s.Ingest(reordertest.EventAt("session.idle", "{}", "d", now, true)) }, []string{"d"}},
		"callback":        {func(s *Session) { s.Ingest(reordertest.EventAt("permission.requested", "{}", "d", now, true)) }, []string{"d"}},
		"title":           {func(s *Session) { s.Ingest(reordertest.EventAt("session.title_changed", "{}", "d", now, true)) }, []string{"d"}},
		"end of session":  {func(s *Session) { s.end(Disconnected, 0) }, nil},
		"loss of runtime": {func(s *Session) { s.state = Loaded; s.RuntimeLost(nil, fmt.Errorf("gone")) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := repeating(t)
			timer := s.burst.timer
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
		s.host.(*rig).log = slog.New(slog.NewTextHandler(&said, nil))
		for n := 12; n < 16; n++ {
			time.Sleep(reorder.Patience - time.Millisecond)
			s.Ingest(b.Event(n))
			s.Ingest(b.Event(100 + n - 2)) // more early ones are no reason to wait longer
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
		s.Ingest(b.Event(2000))
		wantKept(t, s, append(held, "e2000")...)
	})
}

// BenchmarkIngest takes events that come slowly, and those of a burst in order.
func BenchmarkIngest(b *testing.B) {
	for name, burst := range map[string]bool{"calm": false, "burst": true} {
		b.Run(name, func(b *testing.B) {
			src := reordertest.New(4000, nil)
			recs := make([]journal.Record, 8000)
			for i := range recs {
				recs[i] = *src.Event(i)
			}
			s := New(Config{ID: "s1", Epoch: 7, Encode: func(*journal.Record, journal.Form) []byte { return nil }})
			if burst {
				s.Ingest(src.Event(0))
				s.Ingest(src.Event(0)) // a second copy: a burst from here on
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				rec := recs[i%len(recs)]
				rec.ID = journal.ID{1, 15: byte(i), 14: byte(i >> 8), 13: byte(i >> 16), 12: byte(i >> 24)}
				if !burst {
					s.burst.buffer.Reset()
				}
				s.Ingest(&rec)
			}
		})
	}
}
