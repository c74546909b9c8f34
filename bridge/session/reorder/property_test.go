package reorder

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/copilot-grpc/copilot-grpc/bridge/session/reorder/reordertest"
)

// lateCopies are pushed between the events of a burst: second copies of what the CLI has sent
// before, in order.
type lateCopies struct {
	events []int
	next   int
}

// push pushes up to n copies of events below a bound.
func (c *lateCopies) push(r *reader, b *reordertest.Burst, n, below int) {
	for ; n > 0 && c.next < len(c.events) && c.events[c.next] < below; n-- {
		r.push(b.Event(c.events[c.next]))
		c.next++
	}
}

// TestInterleavings: however the two queues of a CLI are mixed, the events come out in order,
// each once, nothing is left behind, and no bound is passed on the way.
func TestInterleavings(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		pieces := rapid.IntRange(100, 600).Draw(rt, "pieces")
		total := 2 * pieces
		// The place of the CLI is known once an event in order has come after the first copy.
		again := 2 * rapid.IntRange(6, pieces/2).Draw(rt, "first of the queue that is sent again")
		gap := min(again+2*rapid.IntRange(140, 400).Draw(rt, "length of it"), total)
		ahead := min(gap+2*rapid.IntRange(0, 200).Draw(rt, "length of the new queue"), total)
		b := reordertest.New(pieces, map[int]time.Duration{gap / 2: time.Duration(rapid.IntRange(0, 1600).Draw(rt, "leap")) * time.Millisecond})
		r := newReader(t)
		for _, n := range append(run(0, 10), 0) { // a second copy begins it
			r.push(b.Event(n))
		}
		for _, n := range run(10, again) {
			r.push(b.Event(n))
		}
		copies := lateCopies{events: run(0, again)}
		queues := [][]int{run(again, gap), run(gap, ahead)}
		for len(queues[0])+len(queues[1]) > 0 {
			q := rapid.IntRange(0, 1).Draw(rt, "queue")
			if left := len(queues[0]); left > 0 && ahead > gap && len(queues[1]) == ahead-gap && !noticed(b, (gap-left-1)/2, gap/2) {
				q = 0 // TestSmallLeap
			}
			n := min(rapid.IntRange(1, 128).Draw(rt, "events"), len(queues[q]))
			for _, event := range queues[q][:n] {
				r.push(b.Event(event))
				if held := r.b.Held(); held > MaxRun || r.b.bytes > MaxBytes {
					rt.Fatalf("%d events and %d bytes are held back", held, r.b.bytes)
				}
			}
			queues[q] = queues[q][n:]
			copies.push(r, b, rapid.IntRange(0, 40).Draw(rt, "copies"), again)
		}
		for _, n := range run(ahead, total) {
			r.push(b.Event(n))
		}
		r.push(reordertest.Durable("d", b.At[pieces-1]))
		if want := append(names(run(0, total)), "d"); !slices.Equal(r.ids, want) {
			rt.Fatalf("events come out as %q", r.ids)
		}
		if r.b.Held() != 0 || r.b.bytes != 0 || len(r.left) != 0 {
			rt.Fatalf("%d events, %d bytes held back at the end; bounds %q", r.b.Held(), r.b.bytes, r.left)
		}
	})
}

// noticed reports whether the leap from one piece to another is large enough that the buffer holds the second one back.
func noticed(b *reordertest.Burst, from, to int) bool {
	return b.Totals[to]-b.Totals[from] > growth || b.At[to].Sub(b.At[from]) >= leap*time.Millisecond
}

// TestSmallLeap: a queue that begins within what a leap of events in order may be, which no CLI was seen to send, is not
// held back. No event is lost, and those that it left behind follow.
func TestSmallLeap(t *testing.T) {
	t.Parallel()
	const ahead = 200
	for missing, want := range map[int]bool{1: false, 2: false, 6: true} {
		b, r := reordertest.New(300, nil), newReader(t)
		late := run(ahead-2*missing, ahead)
		if noticed(b, ahead/2-missing-1, ahead/2) != want {
			t.Fatalf("a leap over %d pieces is of another size than the test believes", missing)
		}
		for _, n := range slices.Concat(run(0, 10), []int{0}, run(10, ahead-2*missing), run(ahead, ahead+40), late, run(ahead+40, 600)) {
			r.push(b.Event(n))
		}
		r.push(reordertest.Durable("d", b.At[299]))
		got, ordered := slices.Clone(r.ids), append(names(run(0, 600)), "d")
		if slices.Equal(got, ordered) != want {
			t.Errorf("behind a leap over %d pieces the events are in order: %v", missing, !want)
		}
		slices.Sort(got)
		if slices.Sort(ordered); !slices.Equal(got, ordered) || r.b.Held() != 0 {
			t.Errorf("behind a leap over %d pieces %d events came out and %d are held back", missing, len(got), r.b.Held())
		}
	}
}

// TestNothingLost: for any arrivals, each event is handed on exactly once at the end, the buffer stays within
// its bounds, and the passing of time alone empties it.
func TestNothingLost(t *testing.T) {
	t.Parallel()
	b := reordertest.New(3000, nil)
	rapid.Check(t, func(rt *rapid.T) {
		r := newReader(t)
		arrivals := rapid.SliceOfN(rapid.IntRange(0, 5999), 1, 300).Draw(rt, "arrivals")
		pushed := map[string]bool{}
		for _, n := range append([]int{0, 0}, arrivals...) {
			r.push(b.Event(n))
			pushed[names([]int{n})[0]] = true
			if len(r.ids)+r.b.Held() < len(pushed) {
				rt.Fatalf("%d events went on and %d are held back of %d", len(r.ids), r.b.Held(), len(pushed))
			}
			if rapid.IntRange(0, 99).Draw(rt, "pause") == 0 {
				held := r.b.Held()
				r.now = r.now.Add(Patience)
				if _, overdue := r.b.Overdue(r.now); overdue != (held > 0) || r.b.Held() > 0 {
					rt.Fatalf("overdue is %v with %d events held back, and %d after", overdue, held, r.b.Held())
				}
			}
		}
		r.b.Flush(r.now)
		if r.b.Held() != 0 || r.b.bytes != 0 || len(r.b.held) != 0 {
			rt.Fatalf("%d events, %d bytes, %d ids are left after Flush", r.b.Held(), r.b.bytes, len(r.b.held))
		}
		if len(r.ids) != len(pushed) {
			rt.Fatalf("%d events went on of %d", len(r.ids), len(pushed))
		}
	})
}
