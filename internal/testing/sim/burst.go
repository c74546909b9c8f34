package sim

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/reorder"
)

// streamed are the pieces of answers that CLI processes have sent, and what the reader has got of them.
type streamed struct {
	places map[journal.ID]int // in the order in which they happened
	got    int
	last   int
	// late: the bridge may have handed pieces on before others, since those took too long.
	late bool
}

// The size of a burst: pieces of text, those that come before the CLI falls behind, those that it sends again, and those that
// it sends too early.
const (
	burstPieces = 40
	burstInTime = 8
	burstAgain  = 12
	burstEarly  = 12
)

// manyPieces make a burst without a second copy.
const manyPieces = reorder.BurstEvents/2 + 1

// burst has the agent stream a part of its answer: for each piece its size, then the text. The CLI falls behind, sends a second
// copy of what it sent before, and then two queues in turns: what it has not sent yet, from its memory, and what happens
// meanwhile. Each queue is in order. It may also pause amid them for longer than the bridge waits.
func (w *world) burst(n int) {
	w.mu.Lock()
	c := w.cli
	streams := c != nil && c.phase == thinking && !w.reader.away
	w.mu.Unlock()
	if !streams {
		return
	}
	const span = 200 * time.Millisecond
	time.Sleep(span)
	rng := rand.New(rand.NewPCG(uint64(n), 1)) //nolint:gosec // a run is made from its seed
	head := 2 * burstInTime
	many := n%12 == 11
	if many {
		head = 2 * manyPieces
	}
	total := head + 2*(burstPieces-burstInTime)
	again, early := head+2*burstAgain, head+2*(burstAgain+burstEarly)
	w.mu.Lock()
	events := w.pieces(total, again, span)
	w.mu.Unlock()
	say := func(from, to int) {
		w.mu.Lock()
		for _, e := range events[from:to] {
			c.notify(e)
		}
		w.mu.Unlock()
		synctest.Wait()
	}
	say(0, head)
	if !many {
		say(0, 1+n%3) // a second copy
	}
	say(head, head+4)
	slow, fast, copies := head+4, again, 1
	for slow < again || fast < early {
		if k := 1 + rng.IntN(8); slow < again && rng.IntN(2) == 0 {
			say(slow, min(slow+k, again))
			slow = min(slow+k, again)
		} else if fast < early {
			say(fast, min(fast+k, early))
			fast = min(fast+k, early)
		}
		if k := rng.IntN(4); copies+k < slow {
			say(copies, copies+k)
			copies += k
		}
		if n%6 == 5 && rng.IntN(4) == 0 {
			w.pause()
		}
	}
	say(early, total)
	w.restart(n)
}

// pause lets the time go by in which the rest of a burst should have come.
func (w *world) pause() {
	w.mu.Lock()
	w.streamed.late = true
	w.mu.Unlock()
	time.Sleep(reorder.Patience + instant)
	synctest.Wait()
}

// pieces makes the events of a burst, four a millisecond, and more than that before the one at a leap. They happened until now.
func (w *world) pieces(total, leap int, span time.Duration) (events []string) {
	at, size := time.Now().Add(-span), 0
	w.streamed.late = false
	for i := range total {
		if i == leap {
			at = at.Add(span / 2)
		} else if i%8 == 0 {
			at = at.Add(time.Millisecond)
		}
		text := strconv.Itoa(i/2) + []string{" ", "é "}[i/2%2]
		kind, data := "assistant.message_delta", `{"messageId":"m","deltaContent":"`+text+`"}`
		if i%2 == 0 {
			size += len(text)
			kind, data = "assistant.streaming_delta", `{"totalResponseSizeBytes":`+strconv.Itoa(size)+`}`
		}
		id := w.uuid()
		w.streamed.places[journal.ParseID([]byte(id))] = len(w.streamed.places) + 1
		events = append(events, eventJSON(id, at.UTC().Format(timestamp), "", kind, true, data))
	}
	return events
}

// stream notes a piece that the reader gets. The caller holds the world's lock.
func (w *world) stream(rec *journal.Record) {
	s := &w.streamed
	place := s.places[rec.ID]
	switch {
	case place == 0:
		return
	case place < 0:
		w.failures = append(w.failures, fmt.Sprintf("the reader gets piece %d of an answer twice", -place))
	case place < s.last && !s.late:
		w.failures = append(w.failures, fmt.Sprintf("the reader gets piece %d of an answer behind piece %d", place, s.last))
	}
	s.places[rec.ID] = -place
	s.last = max(s.last, place)
	s.got++
}

// checkStreamed: the reader has got all pieces, unless a process has ended or the memory is too small for them.
func (w *world) checkStreamed() {
	if n := len(w.streamed.places); w.crashes == 0 && !w.variant.narrow() && w.streamed.got != n {
		w.fail("the reader has got %d of %d pieces of answers", w.streamed.got, n)
	}
}
