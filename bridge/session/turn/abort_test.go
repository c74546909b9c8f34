package turn

import (
	"fmt"
	"testing"
	"time"
)

// TestAbortedMessagesEnd: the CLI does not say that it is idle after an abort if a message comes before. When it takes
// that one up, the messages that the abort removed end, whether or not their ids are known.
func TestAbortedMessagesEnd(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*driver) *Waiter{
		"a turn ran": func(d *driver) *Waiter {
			w := d.sent("m1")
			d.line("user m1 i1")
			d.line("say begun")
			return w
		},
		"a turn had failed": func(d *driver) *Waiter {
			w := d.sent("m1")
			d.line("user m1 i1")
			d.line("fail no")
			return w
		},
		"none ran": func(d *driver) *Waiter { return d.sent("m1") },
	} {
		for _, late := range []bool{false, true} {
			d := newDriver()
			begin(d)
			queued, unnamed := d.sent("m2"), d.expect()
			d.m.Accept(unnamed, d.now)
			d.line("abort")
			next := d.sent("m4")
			if !late {
				d.carryOut(d.m.Identify(unnamed, "m3"))
			}
			end := d.seq
			for _, line := range []string{"user m4 i2", "say A4"} {
				d.line(line)
			}
			if late {
				if unnamed.Over() {
					t.Errorf("%s: a message ended whose id is not known", name)
				}
				d.carryOut(d.m.Identify(unnamed, "m3"))
			}
			want := fmt.Sprintf("ABORTED at %d", end)
			for i, w := range []*Waiter{queued, unnamed} {
				if got := result(w); got != want {
					t.Errorf("%s, late %v, m%d: %s, want %s", name, late, i+2, got, want)
				}
			}
			if d.line("session.idle"); result(next) != fmt.Sprintf("COMPLETED A4 at %d", d.seq) {
				t.Errorf("%s, late %v: the message behind the abort: %s", name, late, result(next))
			}
		}
	}
}

// TestTakenUpBehindAnAbort: the message that the CLI takes up was not removed, whatever was read before its event.
func TestTakenUpBehindAnAbort(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		d := newDriver()
		w := d.expect()
		d.m.Accept(w, d.now)
		d.line("abort")
		if !late {
			d.carryOut(d.m.Identify(w, "m1"))
		}
		for _, line := range []string{"user m1 i1", "say A1"} {
			d.line(line)
		}
		d.carryOut(d.m.Identify(w, "m1"))
		if d.line("session.idle"); result(w) != "COMPLETED A1 at 5" {
			t.Errorf("late %v: %s", late, result(w))
		}
	}
}

// TestReplyBehindAnAbort: the CLI works on calls at the same time, so that its reply to a message may come behind the
// abort that removed the message. A message that came later and is taken up tells; else the time limit of a session at
// rest ends it.
func TestReplyBehindAnAbort(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		immediate bool // the message that is taken up
		late      bool // its id is known only then
		want      string
	}{
		"the next in the queue":  {want: "ABORTED at 6"},
		"the next, its id later": {late: true, want: "ABORTED at 6"},
		"one that steers":        {immediate: true, want: "waits"},
	} {
		d := newDriver()
		running, w := d.sent("m1"), d.expect()
		for _, line := range []string{"user m1 i1", "say begun", "abort", "end", "session.idle"} {
			d.line(line)
		}
		d.m.Accept(w, d.now)
		d.carryOut(d.m.Identify(w, "m2"))
		if d.m.Overdue(d.now.Add(d.m.Bounds.Rest-time.Second), false) || !d.m.Overdue(d.now.Add(d.m.Bounds.Rest), false) || !d.m.AtRest() {
			t.Errorf("%s: the limit of a session at rest is not that of the message", name)
		}
		next := d.expect()
		next.Immediate = c.immediate
		d.m.Accept(next, d.now)
		if !c.late {
			d.carryOut(d.m.Identify(next, "m3"))
		}
		d.line("user m3 i2")
		d.carryOut(d.m.Identify(next, "m3"))
		for _, line := range []string{"say A3", "end", "session.idle"} {
			d.line(line)
		}
		if got := result(w); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if got := result(running) + ", " + result(next); got != "ABORTED begun at 6, COMPLETED A3 at 11" {
			t.Errorf("%s: the others: %s", name, got)
		}
		if d.carryOut(d.m.Rest(d.at())); !w.Over() || w.Outcome().Status != aborted || d.m.Busy() {
			t.Errorf("%s: after the limit: %s", name, result(w))
		}
	}
}

// TestUnnamedBehindAnAbort: CLI 1.0.81 tells what the message says that it takes up, and no id.
func TestUnnamedBehindAnAbort(t *testing.T) {
	t.Parallel()
	d := newDriver()
	running, behind := d.sent("m1"), d.expect()
	running.Prompt, behind.Prompt = []byte(`"slow"`), []byte(`"behind"`)
	d.play("user.message", "", `{"content":"slow","interactionId":"i1"}`)
	for _, line := range []string{"abort", "end"} {
		d.line(line)
	}
	d.m.Accept(behind, d.now)
	d.carryOut(d.m.Identify(behind, "m2"))
	next := d.sent("m3")
	next.Prompt = []byte(`"ag\u0061in"`)
	d.play("user.message", "", `{"content":"again","interactionId":"i2"}`)
	for _, line := range []string{"say A3", "end", "session.idle"} {
		d.line(line)
	}
	if got := result(running) + ", " + result(behind) + ", " + result(next); got != "ABORTED at 3, ABORTED at 3, COMPLETED A3 at 7" {
		t.Error(got)
	}
}

// TestContinuedTurnIsAborted: the abort of a turn that an earlier runtime began, and that this one has not gone on with, does
// not end the message that the CLI takes up at once.
func TestContinuedTurnIsAborted(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*driver){
		"an earlier runtime began it": func(d *driver) { d.m.Continue(true) },
		"none ran":                    func(*driver) {},
	} {
		d := newDriver()
		begin(d)
		d.line("abort")
		next := d.sent("m1")
		for _, line := range []string{"user m1 i1", "say A1", "session.idle"} {
			d.line(line)
		}
		if got, want := result(next), fmt.Sprintf("COMPLETED A1 at %d", d.seq); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		if d.m.Continuing() {
			t.Errorf("%s: it goes on", name)
		}
	}
}

// TestMissingBehindAnAbort: an abort may have removed a message whose reply came behind it. Of one that was accepted before, the
// machine knows.
func TestMissingBehindAnAbort(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		d := newDriver()
		w := d.expect()
		if !late {
			d.m.Accept(w, d.now)
		}
		d.m.abort()
		d.m.Accept(w, d.now)
		if d.m.Missing() != late {
			t.Errorf("accepted behind the abort: %v, missing: %v", late, d.m.Missing())
		}
	}
}

// TestAbortBehindTheTurn: a message whose turn has ended before an abort keeps the outcome of that turn, also if its id is not known
// when the abort would end it.
func TestAbortBehindTheTurn(t *testing.T) {
	t.Parallel()
	for name, abort := range map[string]func(d *driver, w *Waiter){
		"the session is idle": func(d *driver, _ *Waiter) { d.play("session.idle", "", `{"aborted":true}`) },
		"the limit of a session at rest": func(d *driver, w *Waiter) {
			w.aborted, w.doubtful = false, true // the reply came behind the abort
			d.line("session.idle")
			d.carryOut(d.m.Rest(d.at()))
		},
		"the runtime ends":           func(d *driver, w *Waiter) { d.m.Remove(w); d.line("lose") },
		"another turn is given up":   func(d *driver, _ *Waiter) { d.line("user m2 i2"); d.carryOut(d.m.GiveUp(d.at())) },
		"an error without a message": func(d *driver, _ *Waiter) { d.line("session.idle"); d.line("fail again") },
	} {
		d := newDriver()
		w, other := d.expect(), d.expect()
		w.Entry, other.Entry = 1, 2
		d.m.Accept(w, d.now)
		d.m.Accept(other, d.now)
		d.line("user m1 i1")
		d.line("fail no")
		end := d.seq
		d.line("abort")
		abort(d, w)
		if w.Over() {
			t.Errorf("%s: %s, and its id is not known", name, result(w))
		}
		d.carryOut(d.m.Identify(w, "m1"))
		if want := fmt.Sprintf("FAILED because no at %d", end); result(w) != want {
			t.Errorf("%s: %s, want %s", name, result(w), want)
		}
		d.carryOut(d.m.Identify(other, "m3"))
		if name == "the session is idle" && result(other) != fmt.Sprintf("ABORTED at %d", d.seq) {
			t.Errorf("%s: a message that was not taken up: %s", name, result(other))
		}
	}
}

// TestAbortBeforeAnotherDelivery: an abort concerns a message that is given again no more: whether another one that comes before the
// CLI's reply has removed it is not known.
func TestAbortBeforeAnotherDelivery(t *testing.T) {
	t.Parallel()
	d := newDriver()
	w := d.sent("m1")
	d.line("abort")
	d.m.Again(w)
	d.line("abort")
	d.m.Accept(w, d.now)
	d.carryOut(d.m.Identify(w, "m2"))
	if d.play("session.idle", "", `{"aborted":true}`); result(w) != "waits" {
		t.Errorf("the message %s", result(w))
	}
	d.line("user m2 i2")
	d.line("say A2")
	if d.line("session.idle"); result(w) != fmt.Sprintf("COMPLETED A2 at %d", d.seq) {
		t.Errorf("the message %s", result(w))
	}
}
