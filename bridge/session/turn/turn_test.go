package turn

import (
	"fmt"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// driver is a session around a machine: it carries effects out and keeps the time.
type driver struct {
	m   *Machine
	now time.Time
	seq uint64

	begun, ended, rested int
	last                 Outcome // of the latest Ended
	finished             map[*Waiter]int
}

func newDriver() *driver {
	classify := func(message string) (fault.Reason, string) { return fault.None, message }
	return &driver{m: New(Bounds{}, classify), now: time.Unix(1_900_000_000, 0), finished: map[*Waiter]int{}}
}

func (d *driver) carryOut(effects []Effect) {
	for _, e := range effects {
		switch e.Kind {
		case Begun:
			d.begun++
		case Ended:
			d.ended++
			d.last = e.Outcome
		case Finished:
			d.finished[e.Waiter]++
			e.Waiter.Release()
		case Rested:
			d.rested++
		}
	}
}

func (d *driver) play(eventType, agent, data string) {
	d.seq++
	rec := &journal.Record{
		Type: eventType, Agent: agent, Pos: journal.Position{Epoch: 7, Seq: d.seq},
		JSON: fmt.Appendf(nil, `{"type":%q,"data":%s}`, eventType, data),
	}
	d.carryOut(d.m.Apply(rec, d.now))
}

func (d *driver) expect() *Waiter {
	w := &Waiter{}
	w.Init()
	d.m.Expect(w)
	return w
}

// sent is a waiter whose message the CLI has accepted.
func (d *driver) sent(id string) *Waiter {
	w := d.expect()
	d.m.Accept(w, d.now)
	d.carryOut(d.m.Identify(w, id))
	return w
}

func (d *driver) at() journal.Position { return journal.Position{Epoch: 7, Seq: d.seq} }

func user(id string) string { return fmt.Sprintf(`{"messageId":%q}`, id) }

// TestMessagesOfALostRuntime: what becomes of a message whose runtime ends, by what was seen of it
// and by what the history has.
func TestMessagesOfALostRuntime(t *testing.T) {
	t.Parallel()
	taken := func(d *driver) { d.play("user.message", "", user("m1")) }
	for name, c := range map[string]struct {
		before, history func(*driver)
		entry           uint64
		unconfirmed     bool // after the loss
		reason          fault.Reason
		over            bool
	}{
		"taken up":                {before: taken, over: true},
		"taken up in the history": {history: taken, unconfirmed: true, over: true},
		"nowhere":                 {unconfirmed: true, reason: fault.SendUnconfirmed, over: true},
		"in the outbox":           {entry: 3, unconfirmed: true},
		"in both":                 {entry: 3, history: taken, unconfirmed: true, over: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDriver()
			w := d.expect()
			w.Entry = c.entry
			d.m.Accept(w, d.now)
			d.carryOut(d.m.Identify(w, "m1"))
			if c.before != nil {
				c.before(d)
			}
			_, effects := d.m.Lose(runtimeLost, d.at())
			d.carryOut(effects)
			if w.Over() == c.unconfirmed || w.Unconfirmed() != c.unconfirmed {
				t.Fatalf("after the loss: over %v, unconfirmed %v", w.Over(), w.Unconfirmed())
			}
			if c.history != nil {
				c.history(d)
			}
			d.carryOut(d.m.LosePast(d.at()))
			d.carryOut(d.m.Confirm(d.at()))
			if w.Over() != c.over {
				t.Fatalf("over is %v", w.Over())
			}
			if w.Over() && (w.Outcome().Status != runtimeLost || fault.ReasonOf(w.Outcome().Err) != c.reason) {
				t.Errorf("the outcome is %+v", w.Outcome())
			}
			if err := d.m.LostMessage("m1"); fault.ReasonOf(err) != c.reason {
				t.Errorf("asked for again: %v", err)
			}
		})
	}
}

// TestLostMessagesAreBounded: the oldest is forgotten.
func TestLostMessagesAreBounded(t *testing.T) {
	t.Parallel()
	d := newDriver()
	for n := range maxLost + 1 {
		d.sent(fmt.Sprint("m", n))
	}
	_, effects := d.m.Lose(runtimeLost, d.at())
	d.carryOut(effects)
	d.carryOut(d.m.Confirm(d.at()))
	if d.m.LostMessage("m0") != nil || d.m.LostMessage("m1") == nil || d.m.Waiting() {
		t.Error("not the oldest was forgotten, or waiters are left")
	}
}

// TestPastIsNotToldAgain: what a load finds of past turns ends them without telling so.
func TestPastIsNotToldAgain(t *testing.T) {
	t.Parallel()
	d := newDriver()
	d.play("user.message", "", user("m1"))
	d.carryOut(d.m.LosePast(d.at()))
	if d.ended != 0 || d.m.Busy() {
		t.Errorf("%d ends told, busy %v", d.ended, d.m.Busy())
	}
	d.m.Continue(true)
	if !d.m.Busy() || !d.m.Continuing() {
		t.Error("a turn that goes on does not run")
	}
	d.play("session.idle", "", "{}")
	if d.ended != 1 || d.m.Busy() || d.m.Continuing() {
		t.Errorf("%d ends told, busy %v", d.ended, d.m.Busy())
	}
}

// TestOverdue has the time limits: which one holds, and what does not count.
func TestOverdue(t *testing.T) {
	t.Parallel()
	bounds := Bounds{}.WithDefaults()
	for name, c := range map[string]struct {
		events  []string
		agent   string // of the last
		pending bool
		limit   time.Duration // 0: never
	}{
		"nothing runs":            {},
		"silence":                 {events: []string{"user.message"}, limit: bounds.Stall},
		"a model":                 {events: []string{"user.message", "model.call_start"}, limit: bounds.ModelCall},
		"a model of a sub-agent":  {events: []string{"user.message", "model.call_start"}, agent: "a", limit: bounds.ModelCall},
		"a model that has":        {events: []string{"user.message", "model.call_start", "model.call_finished"}, limit: bounds.Stall},
		"a model of another":      {events: []string{"user.message", "model.call_start", "model.call_finished"}, agent: "a", limit: bounds.ModelCall},
		"the agent has rested":    {events: []string{"user.message", "assistant.idle"}, limit: bounds.Rest},
		"a failure":               {events: []string{"user.message", "session.error"}, limit: bounds.Rest},
		"an error of a sub-agent": {events: []string{"user.message", "session.error"}, agent: "a", limit: bounds.Stall},
		"a tool":                  {events: []string{"user.message", "tool.execution_start"}, limit: bounds.Stall}, // then the bridge asks the CLI
		"a tool and a rest":       {events: []string{"user.message", "tool.execution_start", "assistant.idle"}, limit: bounds.Rest},
		"a callback":              {events: []string{"user.message"}, pending: true, limit: bounds.Stall}, // too
		"the session is idle":     {events: []string{"user.message", "session.idle"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDriver()
			for i, e := range c.events {
				agent := ""
				if i == len(c.events)-1 {
					agent = c.agent
				}
				d.play(e, agent, "{}")
			}
			var took time.Duration
			for begin := d.now; took < 2*bounds.ModelCall; took = d.now.Sub(begin) {
				if d.m.Overdue(d.now, c.pending) {
					break
				}
				d.now = d.now.Add(time.Second)
			}
			if want := c.limit; took != want && !(want == 0 && took >= 2*bounds.ModelCall) {
				t.Errorf("overdue after %v, want %v", took, want)
			}
			d.m.SetStalling(true)
			if d.m.Overdue(d.now.Add(24*time.Hour), false) {
				t.Error("overdue again while it is given up")
			}
		})
	}
}

// TestReplay is OutcomeOf: how a turn ended, by the events after its message.
func TestReplay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		events [][2]string
		want   string
	}{
		"idle":        {[][2]string{{"assistant.message", `{"content":"hi"}`}, {"session.idle", `{}`}}, "TURN_STATUS_COMPLETED hi"},
		"an error":    {[][2]string{{"session.error", `{}`}, {"session.idle", `{}`}}, "TURN_STATUS_FAILED "},
		"an abort":    {[][2]string{{"abort", `{}`}, {"session.idle", `{}`}}, "TURN_STATUS_ABORTED "},
		"no end":      {[][2]string{{"assistant.message", `{"content":"hi"}`}}, "TURN_STATUS_RUNTIME_LOST hi"},
		"the next":    {[][2]string{{"session.idle", `{}`}, {"assistant.message", `{"content":"no"}`}, {"abort", `{}`}, {"session.idle", `{}`}}, "TURN_STATUS_COMPLETED "},
		"one between": {[][2]string{{"user.message", user("m2")}, {"assistant.message", `{"content":"both"}`}, {"session.idle", `{}`}}, "TURN_STATUS_COMPLETED both"},
	} {
		r := NewReplay(nil)
		for i, e := range c.events {
			if !r.Apply(&journal.Record{Type: e[0], Pos: journal.Position{Epoch: 7, Seq: uint64(i + 1)}, JSON: fmt.Appendf(nil, `{"type":%q,"data":%s}`, e[0], e[1])}) {
				break
			}
		}
		out := r.Outcome(journal.Position{Epoch: 7, Seq: 99}).Proto()
		if got := out.GetStatus().String() + " " + out.GetText(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
