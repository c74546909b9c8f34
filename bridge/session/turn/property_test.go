package turn

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestMachine plays any order of events, replies and losses: each turn that begins ends once
// before the next begins, a waiter finishes at most once, and at the end of the session's use
// every waiter has finished.
func TestMachine(t *testing.T) {
	t.Parallel()
	events := []string{
		"user.message", "assistant.turn_start", "assistant.turn_end", "assistant.idle", "assistant.message", "abort",
		"session.error", "session.idle", "tool.execution_start", "tool.execution_complete", "model.call_start", "model.call_finished", "other",
	}
	rapid.Check(t, func(rt *rapid.T) {
		d := newDriver()
		var all []*Waiter
		id := rapid.SampledFrom([]string{"", "m0", "m1", "m2", "m3"})
		pick := func() *Waiter {
			if len(all) == 0 {
				return nil
			}
			return all[rapid.IntRange(0, len(all)-1).Draw(rt, "waiter")]
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0:
				w := d.expect()
				w.Entry = uint64(len(all) + 1)
				all = append(all, w)
			case 1:
				if w := pick(); w != nil && !w.finished {
					d.m.Accept(w, d.now)
				}
			case 2:
				if w := pick(); w != nil && w.accepted && !w.known && !w.finished {
					d.carryOut(d.m.Identify(w, fmt.Sprint("m", rapid.IntRange(0, 3).Draw(rt, "id"))))
				}
			case 3:
				_, effects := d.m.Lose(runtimeLost, d.at())
				d.carryOut(effects)
				if d.m.running {
					rt.Fatal("a turn runs after the loss of its runtime")
				}
			case 4:
				d.carryOut(d.m.LosePast(d.at()))
			default:
				agent := rapid.SampledFrom([]string{"", "", "", "a"}).Draw(rt, "agent")
				d.play(rapid.SampledFrom(events).Draw(rt, "event"), agent, fmt.Sprintf(`{"messageId":%q,"interactionId":%q}`,
					id.Draw(rt, "message"), rapid.SampledFrom([]string{"", "i1", "i2"}).Draw(rt, "interaction")))
			}
			d.now = d.now.Add(time.Second)
			for w, n := range d.finished {
				if n != 1 || !w.Over() {
					rt.Fatalf("a waiter finished %d times", n)
				}
			}
			if d.ended > d.begun {
				rt.Fatalf("%d turns ended of %d", d.ended, d.begun)
			}
			if d.m.tools < 0 || len(d.m.effects) != 0 {
				rt.Fatalf("%d tools run; %d effects are left", d.m.tools, len(d.m.effects))
			}
		}
		_, effects := d.m.Lose(aborted, d.at())
		d.carryOut(effects)
		if d.m.Busy() || d.m.Waiting() || d.m.Overdue(d.now.Add(24*time.Hour), false) || d.m.Deserted(d.now.Add(24*time.Hour)) {
			rt.Fatal("something is left at the end of the session's use")
		}
		for _, w := range all {
			if !w.Over() {
				rt.Fatal("a waiter has no outcome")
			}
		}
	})
}

// TestSilenceEnds: after any events, a turn without events, tools and callbacks is overdue after the longest
// limit.
func TestSilenceEnds(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		d := newDriver()
		for range rapid.IntRange(0, 20).Draw(rt, "steps") {
			d.play(rapid.SampledFrom([]string{"user.message", "assistant.turn_start", "assistant.idle", "session.error", "session.idle", "model.call_start", "model.call_finished"}).Draw(rt, "event"), "", "{}")
			d.now = d.now.Add(time.Duration(rapid.IntRange(0, 3600).Draw(rt, "seconds")) * time.Second)
		}
		if d.m.Overdue(d.m.LastEvent().Add(d.m.Bounds.ModelCall), false) != d.m.Busy() {
			rt.Fatal("a silent turn goes on for ever, or one that does not run is ended")
		}
	})
}

// TestQueueProperty plays queues of messages: each is answered, refused or passed over in silence, some are steered, and
// their ids become known at any time. Each message has the outcome of its own turn.
func TestQueueProperty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		d := newDriver()
		n := rapid.IntRange(1, 10).Draw(rt, "messages")
		all, want, known := make([]*Waiter, n), make([]string, n), make([]bool, n)
		for i := range all {
			all[i] = d.expect()
			d.m.Accept(all[i], d.now)
		}
		identify := func(i int) {
			if !known[i] {
				known[i] = true
				d.carryOut(d.m.Identify(all[i], fmt.Sprint("m", i)))
			}
		}
		turns := 0
		for i := 0; i < n; {
			if rapid.Bool().Draw(rt, "known early") {
				identify(rapid.IntRange(0, n-1).Draw(rt, "which"))
			}
			turns++
			d.line(fmt.Sprintf("user m%d i%d", i, turns))
			first, status := i, "COMPLETED"
			texts := map[int]string{}
			for i++; ; {
				if rapid.Bool().Draw(rt, "speaks") {
					text := fmt.Sprint("A", d.seq)
					d.line("say " + text)
					for of := first; of < i; of++ {
						texts[of] = " " + text
					}
				}
				if i == n || !rapid.Bool().Draw(rt, "steered") {
					break
				}
				d.line(fmt.Sprintf("steer m%d i%d", i, turns))
				i++
			}
			d.line("end")
			because := ""
			if rapid.Bool().Draw(rt, "fails") {
				d.line("fail no")
				status, because = "FAILED", " because no"
			} else if i == n {
				d.line("session.idle")
			}
			for of := first; of < i; of++ {
				want[of] = fmt.Sprintf("%s%s%s at %d", status, texts[of], because, d.seq)
			}
		}
		for i := range all {
			identify(i)
			if got := result(all[i]); got != want[i] {
				rt.Errorf("m%d: %s, want %s", i, got, want[i])
			}
		}
		if d.ended != turns {
			rt.Errorf("%d ends told of %d turns", d.ended, turns)
		}
	})
}
