package session

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// burst makes the events of one: for each piece of text its size, then the text.
type burst struct {
	at     []time.Time // by piece
	pieces []string
	totals []int
}

// newBurst has four pieces a millisecond. leaps are pieces before which time passes.
func newBurst(pieces int, leaps map[int]time.Duration) *burst {
	b := &burst{}
	now, total := time.Date(2031, 5, 31, 23, 59, 59, 0, time.UTC), 0
	for i := range pieces {
		now = now.Add(leaps[i])
		if i%4 == 0 {
			now = now.Add(time.Millisecond)
		}
		text := fmt.Sprint(i, []string{" ", "\n", "\"", "é "}[i%7%4])
		total += len(text)
		b.at, b.pieces, b.totals = append(b.at, now), append(b.pieces, text), append(b.totals, total)
	}
	return b
}

// event is the n-th: the size of piece n/2, or its text.
func (b *burst) event(n int) *journal.Record {
	kind, data := "assistant.message_delta", fmt.Sprintf(`{"messageId":"m","deltaContent":%q}`, b.pieces[n/2])
	if n%2 == 0 {
		kind, data = "assistant.streaming_delta", fmt.Sprintf(`{"totalResponseSizeBytes":%d}`, b.totals[n/2])
	}
	return eventAt(kind, data, fmt.Sprint("e", n), b.at[n/2], true)
}

func eventAt(kind, data, id string, at time.Time, ephemeral bool) *journal.Record {
	text := fmt.Sprintf(`{"type":%q,"data":%s,"ephemeral":%t,"id":%q,"timestamp":%q,"parentId":null}`,
		kind, data, ephemeral, id, at.Format("2006-01-02T15:04:05.000Z"))
	return &journal.Record{Type: kind, ID: journal.ParseID([]byte(id)), Ephemeral: ephemeral, JSON: []byte(text)}
}

// idOf is an event's id as text.
func idOf(rec *journal.Record) string {
	_, rest, _ := strings.Cut(string(rec.JSON), `"id":"`)
	id, _, _ := strings.Cut(rest, `"`)
	return id
}

func newOrdered(t *testing.T) *Session {
	return New(Config{ID: "s1", Host: &rig{t: t}, Epoch: 7, MaxEphemeralBytes: 1 << 30,
		Encode: func(*journal.Record, journal.Form) []byte { return nil }})
}

// kept lists the ids in the journal.
func kept(s *Session) (ids []string) {
	s.journal.Each(func(rec *journal.Record) bool { ids = append(ids, idOf(rec)); return true })
	return ids
}

func wantKept(t *testing.T, s *Session, want ...string) {
	t.Helper()
	got := kept(s)
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("%d events, want %d; from the %dth on %q, want %q", len(got), len(want), i, got[min(i, len(got)):min(i+6, len(got))], want[min(i, len(want)):min(i+6, len(want))])
		}
	}
}

// run lists the events from one up to another.
func run(from, to int) (list []int) {
	for n := from; n < to; n++ {
		list = append(list, n)
	}
	return list
}

func names(events []int) (ids []string) {
	for _, n := range events {
		ids = append(ids, fmt.Sprint("e", n))
	}
	return ids
}

func durable(id string, at time.Time) *journal.Record {
	return eventAt("assistant.message", `{"content":"all"}`, id, at, false)
}

// TestOrderRestored has arrivals as they have been seen on a loaded machine. All begin
// with a second copy; numbers that come again are second copies too.
func TestOrderRestored(t *testing.T) {
	t.Parallel()
	second := map[int]time.Duration{300: time.Second}
	short := map[int]time.Duration{300: 7 * time.Millisecond}
	inside := map[int]time.Duration{100: 80 * time.Millisecond, 101: 70 * time.Millisecond}
	for name, c := range map[string]struct {
		leaps map[int]time.Duration
		then  [][]int // after e0..e9
	}{
		"copies only":       {nil, [][]int{run(10, 100), run(0, 50), run(100, 700), run(50, 600)}},
		"leaps of its own":  {inside, [][]int{run(10, 700)}},
		"one pair early":    {second, [][]int{run(10, 100), {600, 601}, run(100, 600), run(602, 700)}},
		"by a little":       {short, [][]int{run(10, 100), run(600, 620), run(100, 600), run(620, 700)}},
		"no leap in time":   {nil, [][]int{run(10, 100), run(600, 620), run(100, 600), run(620, 700)}},
		"many in a row":     {second, [][]int{run(10, 590), run(600, 680), run(590, 600), run(680, 700)}},
		"pairs torn apart":  {second, [][]int{run(10, 101), {600}, run(101, 104), {601, 602}, {104}, {603}, run(105, 600), run(604, 700)}},
		"torn in one ms":    {nil, [][]int{run(10, 101), {600}, run(101, 599), {601, 602}, {599}, {603}, run(604, 700)}},
		"and copies":        {second, [][]int{run(10, 100), {600, 601}, run(0, 20), run(100, 300), {602}, run(20, 200), run(300, 600), run(603, 700)}},
		"copy of an early":  {second, [][]int{run(10, 100), {600, 601, 602, 603}, {602}, run(100, 600), {600, 601}, run(604, 700), {603}}},
		"copy in the midst": {map[int]time.Duration{300: time.Second, 301: time.Millisecond}, [][]int{run(10, 100), run(600, 640), {601, 610}, run(100, 600), run(640, 700)}},
		"copies of held":    {second, [][]int{run(10, 100), run(600, 620), {601, 603, 605, 619, 617, 604, 600}, run(100, 600), run(620, 700)}},
		"two gaps":          {second, [][]int{run(10, 100), run(300, 320), run(100, 200), run(600, 620), run(200, 300), run(320, 600), run(620, 700)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, s := newBurst(350, c.leaps), newOrdered(t)
			for _, n := range slices.Concat(append([][]int{run(0, 10), {0}}, c.then...)...) {
				s.Ingest(b.event(n))
			}
			wantKept(t, s, names(run(0, 700))...)
			if s.order.early != nil || s.order.bytes != 0 {
				t.Errorf("%d events, %d bytes are still held back", len(s.order.early), s.order.bytes)
			}
		})
	}
}

// TestOrderCalm: nothing is held back while the CLI does not repeat itself.
func TestOrderCalm(t *testing.T) {
	t.Parallel()
	b, s := newBurst(100, map[int]time.Duration{50: time.Minute}), newOrdered(t)
	arrivals := slices.Concat(run(0, 20), run(100, 120), run(20, 100), run(120, 200))
	for i, n := range arrivals {
		s.Ingest(b.event(n))
		if got := s.journal.Last().Seq; got != uint64(i+1) {
			t.Fatalf("%d events are in the journal after %d", got, i+1)
		}
	}
	wantKept(t, s, names(arrivals)...)
}

// TestOrderWatched: early events are put right in a burst, without any second copy too,
// until the turn ends, and however late it comes. Events that come slowly are left as they
// are, and make no burst of what comes after them slower.
func TestOrderWatched(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		pause time.Duration         // once, on the way
		leaps map[int]time.Duration // of the CLI's clock
		idle  bool
		want  bool
	}{
		"burst":       {0, nil, false, true},
		"slow":        {burstTime, map[int]time.Duration{250: burstTime}, false, false},
		"we are late": {burstTime, nil, false, true},
		"CLI is late": {0, map[int]time.Duration{250: burstTime}, false, true},
		"next one":    {0, nil, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b, s := newBurst(1000, c.leaps), newOrdered(t)
				for n := range burstEvents + 2 {
					if n == 500 {
						time.Sleep(c.pause)
					}
					s.Ingest(b.event(n))
				}
				before := run(0, burstEvents+2)
				if c.idle {
					s.Ingest(eventAt("session.idle", "{}", "idle", b.at[burstEvents/2], true))
				}
				arrivals := slices.Concat(run(1500, 1520), run(burstEvents+2, 1500))
				for _, n := range arrivals {
					s.Ingest(b.event(n))
				}
				if c.want {
					slices.Sort(arrivals)
				}
				want := names(before)
				if c.idle {
					want = append(want, "idle")
				}
				s.mu.Lock()
				s.endOrder()
				s.mu.Unlock()
				wantKept(t, s, append(want, names(arrivals)...)...)
			})
		})
	}
}

// TestOrderAfterSlow: a burst is known for one after so many events, however many came slowly
// before it.
func TestOrderAfterSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const slow = burstEvents - 24
		b, s := newBurst(2000, map[int]time.Duration{slow / 2: 2 * burstTime}), newOrdered(t)
		for n := range slow + burstEvents {
			if n == slow {
				time.Sleep(2 * burstTime)
			}
			s.Ingest(b.event(n))
		}
		for _, n := range slices.Concat(run(3000, 3020), run(slow+burstEvents, 3000)) {
			s.Ingest(b.event(n))
		}
		s.Ingest(durable("d", b.at[1999]))
		wantKept(t, s, append(names(run(0, 3020)), "d")...)
	})
}

// TestOrderWhileLoaded: what comes while the session is loaded is put in order, too.
func TestOrderWhileLoaded(t *testing.T) {
	t.Parallel()
	b, s := newBurst(350, map[int]time.Duration{300: time.Second}), newOrdered(t)
	s.holding = true
	for _, n := range slices.Concat(run(0, 10), []int{0}, run(10, 100), run(600, 620), run(100, 600), run(620, 700)) {
		s.Ingest(b.event(n))
	}
	s.mu.Lock()
	s.releaseHeld()
	s.mu.Unlock()
	wantKept(t, s, names(run(0, 700))...)
}

// repeating returns a session that holds back events 100 to 109, after 0 to 9.
func repeating(t *testing.T) (*Session, *burst) {
	b, s := newBurst(5000, nil), newOrdered(t)
	for _, n := range slices.Concat(run(0, 10), []int{0}, run(10, 12), run(100, 110)) {
		s.Ingest(b.event(n))
	}
	wantKept(t, s, names(run(0, 12))...)
	return s, b
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
		"durable event":   {func(s *Session) { s.Ingest(durable("d", now)) }, []string{"d"}},
		"idle":            {func(s *Session) { s.Ingest(eventAt("session.idle", "{}", "d", now, true)) }, []string{"d"}},
		"callback":        {func(s *Session) { s.Ingest(eventAt("permission.requested", "{}", "d", now, true)) }, []string{"d"}},
		"title":           {func(s *Session) { s.Ingest(eventAt("session.title_changed", "{}", "d", now, true)) }, []string{"d"}},
		"end of session":  {func(s *Session) { s.end(Disconnected, 0) }, nil},
		"loss of runtime": {func(s *Session) { s.state = Loaded; s.RuntimeLost(nil, fmt.Errorf("gone")) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, _ := repeating(t)
			timer := s.order.timer
			c.do(s)
			wantKept(t, s, append(slices.Clone(early), c.want...)...)
			if timer.Stop() {
				t.Error("the timer still runs")
			}
		})
	}
}

// TestOrderBounds: what cannot be put in order goes on as it is.
func TestOrderBounds(t *testing.T) {
	t.Parallel()
	t.Run("events", func(t *testing.T) {
		t.Parallel()
		s, b := repeating(t)
		for n := 110; n < 100+maxEarlyRun; n++ {
			s.mu.Lock() // also the timer's
			held := len(s.order.early)
			s.mu.Unlock()
			if held >= maxEarlyRun {
				t.Fatalf("%d events are held back", held)
			}
			s.Ingest(b.event(n))
		}
		wantKept(t, s, names(slices.Concat(run(0, 12), run(100, 100+maxEarlyRun)))...)
	})
	t.Run("bytes", func(t *testing.T) {
		t.Parallel()
		s, b := repeating(t)
		large := eventAt("tool.execution_progress", fmt.Sprintf("%q", strings.Repeat("x", maxEarlyBytes)), "large", b.at[4000], true)
		s.Ingest(large)
		wantKept(t, s, append(names(slices.Concat(run(0, 12), run(100, 110))), "large")...)
	})
	t.Run("no timestamp", func(t *testing.T) {
		t.Parallel()
		s, b := repeating(t)
		rec := b.event(200)
		rec.JSON = []byte(strings.Replace(string(rec.JSON), "Z\"", "+00:00\"", 1))
		s.Ingest(rec)
		wantKept(t, s, names(append(run(0, 12), 200))...)
	})
}

// TestOrderPatience: the timer gives up when nothing comes in between, and only then.
func TestOrderPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, b := repeating(t)
		var said strings.Builder
		s.host.(*rig).log = slog.New(slog.NewTextHandler(&said, nil))
		for n := 12; n < 16; n++ {
			time.Sleep(earlyPatience - time.Millisecond)
			s.Ingest(b.event(n))
			s.Ingest(b.event(100 + n - 2)) // more early ones are no reason to wait longer
		}
		held := names(slices.Concat(run(0, 16), run(100, 114)))
		wantKept(t, s, held[:16]...)
		time.Sleep(earlyPatience - time.Millisecond)
		synctest.Wait()
		wantKept(t, s, held[:16]...)
		time.Sleep(time.Millisecond)
		synctest.Wait()
		wantKept(t, s, held...)
		if got := said.String(); strings.Count(got, LeftOutOfOrder) != 1 || !strings.Contains(got, "reason=pause epoch=7 after_seq=16 through_seq=30") {
			t.Errorf("the log says %q", got)
		}
		// A burst that goes on slowly is not delayed again, until the CLI repeats itself.
		s.Ingest(b.event(2000))
		wantKept(t, s, append(held, "e2000")...)
	})
}

// disorder is how the CLI sends the first n events of a burst: what it says again and
// what is new in between, each in order, and second copies of what it has said before.
func disorder(r *rand.Rand, n int) (arrivals []int) {
	var copies []int
	arrivals = append(run(0, 10), 0)
	for next := 10; next < n; {
		calm := min(n, next+2*r.IntN(300)+2)
		gap := min(n, calm+2*(140+r.IntN(600)))
		ahead := min(n, gap+2*r.IntN(300))
		arrivals = append(arrivals, run(next, calm)...)
		copies = append(copies, run(next, gap)...)
		again, live := run(calm, gap), run(gap, ahead)
		for len(again)+len(live) > 0 {
			from := &again
			if r.IntN(4) == 0 || len(again) == 0 {
				from = &live
			}
			k := min(len(*from), 1+r.IntN(1+r.IntN(128)))
			arrivals = append(arrivals, (*from)[:k]...)
			*from = (*from)[k:]
			k = min(len(copies), r.IntN(40))
			if r.IntN(2) == 0 && copies[max(0, k-1)] < calm {
				arrivals = append(arrivals, copies[:k]...)
				copies = copies[k:]
			}
		}
		next = ahead
	}
	return arrivals
}

func FuzzOrder(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 1))
		const n = 4000
		leaps := map[int]time.Duration{}
		for range r.IntN(20) {
			leaps[r.IntN(n/2)] = time.Duration(r.IntN(200)) * time.Millisecond
		}
		b, s := newBurst(n/2, leaps), newOrdered(t)
		for _, k := range disorder(r, n) {
			s.Ingest(b.event(k))
		}
		s.Ingest(durable("d", b.at[n/2-1]))
		wantKept(t, s, append(names(run(0, n)), "d")...)
	})
}

func TestTimestamp(t *testing.T) {
	t.Parallel()
	at := func(text string) int64 {
		return timestamp([]byte(`{"data":{"timestamp":"x"},` + text + `,"parentId":null}`))
	}
	times := []string{"1999-12-31T23:59:59.999Z", "2000-01-01T00:00:00.000Z", "2026-11-30T23:59:59.999Z", "2026-12-01T00:00:00.000Z", "2026-12-01T00:00:00.001Z", "2026-12-01T01:02:03.004Z"}
	for i, now := range times {
		if got := at(`"timestamp":"` + now + `"`); got <= 0 || i > 0 && got <= at(`"timestamp":"`+times[i-1]+`"`) {
			t.Errorf("%s is %d", now, got)
		}
	}
	if got := at(`"timestamp":"`+times[5]+`"`) - at(`"timestamp":"`+times[4]+`"`); got != 3723003 {
		t.Errorf("%d ms between %s and %s", got, times[4], times[5])
	}
	for _, bad := range []string{`"timestamp":"2026-11-21T03:04:56.272+00"`, `"timestamp":"2026-11-21T03:04:56Z"`, `"timestamp": "2026-11-21T03:04:56.272Z"`, `"timestamp":1`, `"time":"2026-11-21T03:04:56.272Z"`} {
		if got := at(bad); got != 0 {
			t.Errorf("%s is %d, want 0", bad, got)
		}
	}
}

// BenchmarkIngest takes events that come slowly, and those of a burst in order.
func BenchmarkIngest(b *testing.B) {
	for name, burst := range map[string]bool{"calm": false, "burst": true} {
		b.Run(name, func(b *testing.B) {
			src := newBurst(4000, nil)
			recs := make([]journal.Record, 8000)
			for i := range recs {
				recs[i] = *src.event(i)
			}
			s := New(Config{ID: "s1", Epoch: 7, Encode: func(*journal.Record, journal.Form) []byte { return nil }})
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				rec := recs[i%len(recs)]
				rec.ID = journal.ID{1, 15: byte(i), 14: byte(i >> 8), 13: byte(i >> 16), 12: byte(i >> 24)}
				s.order.watching = burst
				if !burst {
					s.order.count = 1
				}
				s.Ingest(&rec)
			}
		})
	}
}
