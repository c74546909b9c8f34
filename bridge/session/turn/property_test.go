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
				all = append(all, d.expect())
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
				d.carryOut(d.m.Confirm(d.at()))
			default:
				agent := rapid.SampledFrom([]string{"", "", "", "a"}).Draw(rt, "agent")
				d.play(rapid.SampledFrom(events).Draw(rt, "event"), agent, user(id.Draw(rt, "message")))
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
