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

// FuzzOrderInOrder: a burst that comes in order, with second copies in between, stays as it
// is, wherever the CLI pauses: between a size and its text, too.
func FuzzOrderInOrder(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 2))
		s := newReader(t)
		now := time.Date(2031, 5, 31, 23, 59, 59, 0, time.UTC)
		every, after := 1+r.IntN(3), 1+r.IntN(800)
		var sent []func() *journal.Record
		var want []string
		say := func(kind, data string) {
			switch r.IntN(200) {
			case 0:
				now = now.Add(time.Duration(r.IntN(200)) * time.Millisecond)
			case 1, 2, 3, 4, 5, 6, 7, 8, 9:
				now = now.Add(time.Millisecond)
			}
			at, id := now, fmt.Sprint("e", len(sent))
			again := func() *journal.Record { return reordertest.EventAt(kind, data, id, at, true) }
			sent, want = append(sent, again), append(want, id)
			s.push(again())
			if due := len(sent) - 1 - after; due >= 0 && due%every == 0 {
				s.push(sent[due]())
			}
		}
		for range 1 + r.IntN(3) {
			piece := strings.Repeat("x", 1+r.IntN(40))
			now = now.Add(time.Duration(r.IntN(100)) * time.Millisecond) // the model thinks
			say("model.model_call_started", `{}`)
			now = now.Add(time.Duration(r.IntN(100)) * time.Millisecond)
			for n := range 1 + r.IntN(700) {
				say("assistant.streaming_delta", fmt.Sprintf(`{"totalResponseSizeBytes":%d}`, (n+1)*len(piece)))
				if n == 0 {
					say("assistant.message_start", `{"messageId":"m"}`)
				}
				say("assistant.message_delta", fmt.Sprintf(`{"messageId":"m","deltaContent":%q}`, piece))
			}
			say("assistant.usage", `{}`)
			say("model.call_finished", `{}`)
			id := fmt.Sprint("d", len(sent))
			want = append(want, id)
			s.push(reordertest.Durable(id, now))
		}
		s.want(want...)
	})
}

// TestOrderBeginning: what a response begins with, after a pause of the model, is not early.
func TestOrderBeginning(t *testing.T) {
	t.Parallel()
	s := newReader(t)
	s.b.watching = true
	now := time.Date(2031, 5, 31, 23, 59, 59, 0, time.UTC)
	s.push(reordertest.Durable("d", now))
	s.push(reordertest.EventAt("model.model_call_started", `{}`, "a", now, true))
	now = now.Add(2 * leap * time.Millisecond)
	s.push(reordertest.EventAt("assistant.streaming_delta", `{"totalResponseSizeBytes":3}`, "b", now, true))
	s.push(reordertest.EventAt("assistant.message_start", `{"messageId":"m"}`, "c", now, true))
	s.push(reordertest.EventAt("assistant.message_delta", `{"messageId":"m","deltaContent":"one"}`, "e", now, true))
	s.want("d", "a", "b", "c", "e")
}

// TestOrderInBetween: what is no part of the response, in the middle of a burst with second
// copies, does not hold up what comes after it.
func TestOrderInBetween(t *testing.T) {
	t.Parallel()
	b, s := reordertest.New(350, nil), newReader(t)
	for i := range b.Pieces { // long enough for a size to look as if it were early
		b.Pieces[i] = strings.Repeat("x", 19)
		b.Totals[i] = 19 * (i + 1)
	}
	var want []string
	for n := range 700 {
		if n == 300 || n == 401 { // between two pieces, and between a size and its text
			id := fmt.Sprint("note", n)
			s.push(reordertest.EventAt("pending_messages.modified", `{}`, id, b.At[n/2], true))
			want = append(want, id)
		}
		s.push(b.Event(n))
		want = append(want, fmt.Sprint("e", n))
		if n >= 200 {
			s.push(b.Event(n - 200))
		}
		if n%2 == 1 && n > 200 && s.b.Held() > 0 {
			t.Fatalf("%d events are held back after event %d", s.b.Held(), n)
		}
	}
	s.want(want...)
}

// TestOrderInBetweenAfterPause: what is no part of the response, and comes first after a pause of the model amid a burst, does not hold
// up what comes after it, also if the size before it has no text yet.
func TestOrderInBetweenAfterPause(t *testing.T) {
	t.Parallel()
	const pause = 200
	for _, at := range []int{pause, pause + 1} { // between two pieces, and between a size and its text
		b, s := reordertest.New(200, map[int]time.Duration{pause / 2: leap * time.Millisecond}), newReader(t)
		for _, n := range slices.Concat(run(0, 20), []int{0}, run(20, pause)) {
			s.push(b.Event(n))
		}
		var want []string
		for n := pause; n < 2*pause; n++ {
			if n == at {
				s.push(reordertest.EventAt("pending_messages.modified", `{}`, "note", b.At[n/2], true))
				want = append(want, "note")
			}
			s.push(b.Event(n))
			want = append(want, fmt.Sprint("e", n))
			if n > pause+3 && n%2 == 1 && s.b.Held() > 0 {
				t.Fatalf("%d events are held back after event %d", s.b.Held(), n)
			}
		}
		s.want(append(names(run(0, pause)), want...)...)
	}
}

// TestOrderOfNextResponse: what is no part of a response, and comes before the next one in the same millisecond, stays before it.
func TestOrderOfNextResponse(t *testing.T) {
	t.Parallel()
	b, s := reordertest.New(100, nil), newReader(t)
	for _, n := range slices.Concat(run(0, 20), []int{0}, run(20, 200)) {
		s.push(b.Event(n))
	}
	now := b.At[99].Add(leap * time.Millisecond)
	s.push(reordertest.EventAt("pending_messages.modified", `{}`, "note", now, true))
	s.push(reordertest.EventAt("assistant.streaming_delta", `{"totalResponseSizeBytes":3}`, "size", now, true))
	s.push(reordertest.EventAt("assistant.message_delta", `{"messageId":"m","deltaContent":"one"}`, "text", now, true))
	s.want(append(names(run(0, 200)), "note", "size", "text")...)
}

// Neither an event about the session nor a message ends a burst: early events right after it are held back.
func TestOrderAcrossSessionEvents(t *testing.T) {
	t.Parallel()
	for kind, ephemeral := range map[string]bool{"session.tools_updated": true, "user.message": false} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			b := reordertest.New(350, map[int]time.Duration{300: time.Second})
			s := newReader(t)
			for _, n := range slices.Concat(run(0, 90), []int{0}, run(90, 100)) { // from the second copy on it is watched
				s.push(b.Event(n))
			}
			s.push(reordertest.EventAt(kind, `{}`, "between", b.At[50], ephemeral))
			for _, list := range [][]int{run(600, 604), run(100, 600), run(604, 700)} {
				for _, n := range list {
					s.push(b.Event(n))
				}
			}
			s.push(reordertest.Durable("end", b.At[349]))
			s.want(append(append(append(names(run(0, 100)), "between"), names(run(100, 700))...), "end")...)
		})
	}
}
