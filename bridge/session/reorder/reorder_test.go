package reorder

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/reorder/reordertest"
)

var run, names = reordertest.Run, reordertest.Names

// reader receives the events of a buffer, with a clock of the test.
type reader struct {
	t    *testing.T
	b    *Buffer
	now  time.Time
	seen map[journal.ID]bool
	ids  []string
	left []Reason
}

func newReader(t *testing.T) *reader {
	r := &reader{t: t, now: time.Unix(1_900_000_000, 0), seen: map[journal.ID]bool{}}
	r.b = New(func(rec *journal.Record) (fresh bool) {
		if r.seen[rec.ID] {
			return false
		}
		r.seen[rec.ID] = true
		r.ids = append(r.ids, reordertest.ID(rec))
		return true
	}, func(id journal.ID) bool { return r.seen[id] })
	return r
}

// push does what a caller does.
func (r *reader) push(rec *journal.Record) {
	if reason := r.b.Push(rec, r.now); reason != None {
		r.left = append(r.left, reason)
		r.b.Flush(r.now)
	}
}

func (r *reader) want(want ...string) {
	r.t.Helper()
	reordertest.Equal(r.t, r.ids, want)
}

// wantLeft checks the bounds that were reached.
func (r *reader) wantLeft(want ...Reason) {
	r.t.Helper()
	if !slices.Equal(r.left, want) {
		r.t.Errorf("reached the bounds %q, want %q", r.left, want)
	}
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
			b, s := reordertest.New(350, c.leaps), newReader(t)
			for _, n := range slices.Concat(append([][]int{run(0, 10), {0}}, c.then...)...) {
				s.push(b.Event(n))
			}
			s.want(names(run(0, 700))...)
			if s.b.early != nil || s.b.bytes != 0 {
				t.Errorf("%d events, %d bytes are still held back", s.b.Held(), s.b.bytes)
			}
		})
	}
}

// TestOrderCalm: nothing is held back while the CLI does not repeat itself.
func TestOrderCalm(t *testing.T) {
	t.Parallel()
	b, s := reordertest.New(100, map[int]time.Duration{50: time.Minute}), newReader(t)
	arrivals := slices.Concat(run(0, 20), run(100, 120), run(20, 100), run(120, 200))
	for i, n := range arrivals {
		s.push(b.Event(n))
		if got := len(s.ids); got != i+1 {
			t.Fatalf("%d events have gone on after %d", got, i+1)
		}
	}
	s.want(names(arrivals)...)
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
			b, s := reordertest.New(1000, c.leaps), newReader(t)
			for n := range BurstEvents + 2 {
				if n == 500 {
					s.now = s.now.Add(c.pause)
				}
				s.push(b.Event(n))
			}
			before := run(0, BurstEvents+2)
			if c.idle {
				s.push(reordertest.EventAt("session.idle", "{}", "idle", b.At[BurstEvents/2], true))
			}
			arrivals := slices.Concat(run(1500, 1520), run(BurstEvents+2, 1500))
			for _, n := range arrivals {
				s.push(b.Event(n))
			}
			if c.want {
				slices.Sort(arrivals)
			}
			want := names(before)
			if c.idle {
				want = append(want, "idle")
			}
			s.b.Flush(s.now)
			s.want(append(want, names(arrivals)...)...)
		})
	}
}

// TestOrderAfterSlow: a burst is known for one after so many events, however many came slowly
// before it.
func TestOrderAfterSlow(t *testing.T) {
	t.Parallel()
	const slow = BurstEvents - 24
	b, s := reordertest.New(2000, map[int]time.Duration{slow / 2: 2 * burstTime}), newReader(t)
	for n := range slow + BurstEvents {
		if n == slow {
			s.now = s.now.Add(2 * burstTime)
		}
		s.push(b.Event(n))
	}
	for _, n := range slices.Concat(run(3000, 3020), run(slow+BurstEvents, 3000)) {
		s.push(b.Event(n))
	}
	s.push(reordertest.Durable("d", b.At[1999]))
	s.want(append(names(run(0, 3020)), "d")...)
}

// repeating returns a reader of a buffer that holds back events 100 to 109, after 0 to 9.
func repeating(t *testing.T) (*reader, *reordertest.Burst) {
	b, s := reordertest.New(5000, nil), newReader(t)
	for _, n := range slices.Concat(run(0, 10), []int{0}, run(10, 12), run(100, 110)) {
		s.push(b.Event(n))
	}
	s.want(names(run(0, 12))...)
	return s, b
}

// TestOrderBounds: what cannot be put in order goes on as it is.
func TestOrderBounds(t *testing.T) {
	t.Parallel()
	t.Run("events", func(t *testing.T) {
		t.Parallel()
		s, b := repeating(t)
		for n := 110; n < 100+MaxRun; n++ {
			if held := s.b.Held(); held >= MaxRun {
				t.Fatalf("%d events are held back", held)
			}
			s.push(b.Event(n))
		}
		s.want(names(slices.Concat(run(0, 12), run(100, 100+MaxRun)))...)
		s.wantLeft(Many)
	})
	t.Run("bytes", func(t *testing.T) {
		t.Parallel()
		s, b := repeating(t)
		large := reordertest.EventAt("tool.execution_progress", fmt.Sprintf("%q", strings.Repeat("x", MaxBytes)), "large", b.At[4000], true)
		s.push(large)
		s.want(append(names(slices.Concat(run(0, 12), run(100, 110))), "large")...)
		s.wantLeft(Large)
	})
	t.Run("no timestamp", func(t *testing.T) {
		t.Parallel()
		s, b := repeating(t)
		rec := b.Event(200)
		rec.JSON = []byte(strings.Replace(string(rec.JSON), "Z\"", "+00:00\"", 1))
		s.push(rec)
		s.want(names(append(run(0, 12), 200))...)
	})
}

// TestOverdue: what is held back goes on when no event in order has come for Patience.
func TestOverdue(t *testing.T) {
	t.Parallel()
	s, b := repeating(t)
	s.now = s.now.Add(Patience - time.Millisecond)
	s.push(b.Event(12)) // in order: the waiting begins again
	s.now = s.now.Add(time.Millisecond)
	if left, overdue := s.b.Overdue(s.now); overdue || left != Patience-time.Millisecond {
		t.Errorf("overdue %v, %v left; want %v left", overdue, left, Patience-time.Millisecond)
	}
	s.push(b.Event(110)) // more early ones are no reason to wait longer
	s.now = s.now.Add(Patience - time.Millisecond)
	if _, overdue := s.b.Overdue(s.now); !overdue {
		t.Error("not overdue")
	}
	held := slices.Concat(run(0, 13), run(100, 111))
	s.want(names(held)...)
	s.push(b.Event(2000)) // it was a pause: nothing is held back now
	s.want(names(append(held, 2000))...)
	s.push(b.Event(2000)) // a second copy, which does not say how far the CLI has come
	s.push(b.Event(4000))
	s.want(names(append(held, 2000, 4000))...)
	if left, overdue := s.b.Overdue(s.now.Add(time.Hour)); left != 0 || overdue {
		t.Errorf("overdue %v with nothing held back, %v left", overdue, left)
	}
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
		b, s := reordertest.New(n/2, leaps), newReader(t)
		for _, k := range disorder(r, n) {
			s.push(b.Event(k))
		}
		s.push(reordertest.Durable("d", b.At[n/2-1]))
		s.want(append(names(run(0, n)), "d")...)
	})
}

// A second copy that comes in the millisecond of the burst's last event is not held back as an early event: the next
// text would overtake its size.
func TestCopiesOfTheSameMillisecond(t *testing.T) {
	t.Parallel()
	b := reordertest.New(100, nil)
	r := newReader(t)
	for _, n := range append(append(run(0, 10), 0), run(10, 22)...) { // the copy of 0 begins the watching
		r.push(b.Event(n))
	}
	for _, n := range []int{16, 17, 22, 18, 19, 23} { // 16 to 23 have one time
		r.push(b.Event(n))
	}
	for _, n := range run(24, 30) {
		r.push(b.Event(n))
	}
	r.b.Flush(r.now)
	reordertest.Equal(t, r.ids, names(run(0, 30)))
}

// TestReset: a burst that is forgotten holds nothing back.
func TestReset(t *testing.T) {
	t.Parallel()
	s, b := repeating(t)
	s.b.Flush(s.now)
	s.b.Reset()
	before := len(s.ids)
	s.push(b.Event(2000))
	if s.b.Held() != 0 || len(s.ids) != before+1 {
		t.Errorf("%d events are held back", s.b.Held())
	}
}

// TestTextBehindText: two pieces without the size between them are not neighbours, once a size is known.
func TestTextBehindText(t *testing.T) {
	t.Parallel()
	for total, want := range map[int64]bool{0: false, 9: true} {
		if got := (place{at: 7, total: 12, kind: said}).leads(place{at: 7, total: total, kind: said}); got != want {
			t.Errorf("behind %d bytes a piece leads: %v", total, got)
		}
	}
}
