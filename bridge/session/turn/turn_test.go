package turn

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
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
			e.Waiter.Wake()
		case Rested:
			d.rested++
		}
	}
}

func (d *driver) play(eventType, agent, data string) {
	d.playRecord(&journal.Record{
		Type: eventType, Agent: agent, JSON: fmt.Appendf(nil, `{"type":%q,"data":%s}`, eventType, data),
	})
}

// playRecord takes an event as the session does when it comes.
func (d *driver) playRecord(rec *journal.Record) {
	d.carryOut(d.m.Precede(rec, d.at()))
	d.seq++
	rec.Pos = d.at()
	d.carryOut(d.m.Apply(rec, d.now))
}

func (d *driver) expect() *Waiter {
	w := NewWaiter(0)
	d.m.Expect(w)
	return w
}

// sent is a waiter whose message the CLI has accepted.
func (d *driver) sent(id string) *Waiter {
	w := d.expect()
	w.Entry = 1
	d.m.Accept(w, d.now)
	d.carryOut(d.m.Identify(w, id))
	return w
}

func (d *driver) at() journal.Position { return journal.Position{Epoch: 7, Seq: d.seq} }

func user(id string) string { return fmt.Sprintf(`{"messageId":%q}`, id) }

// TestMessagesOfALostRuntime: what becomes of a message whose runtime ends, by what was seen of it
// and by what the history has. The outbox ends the waiting for a message that the history lacks.
func TestMessagesOfALostRuntime(t *testing.T) {
	t.Parallel()
	taken := func(d *driver) { d.play("user.message", "", user("m1")) }
	for name, c := range map[string]struct {
		before, history func(*driver)
		unconfirmed     bool // after the loss
		over            bool
	}{
		"taken up":                {before: taken, over: true},
		"taken up in the history": {history: taken, unconfirmed: true, over: true},
		"nowhere":                 {unconfirmed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDriver()
			w := d.sent("m1")
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
			if w.Over() != c.over {
				t.Fatalf("over is %v", w.Over())
			}
			if w.Over() && (w.Outcome().Status != runtimeLost || w.Outcome().Err != nil) {
				t.Errorf("the outcome is %+v", w.Outcome())
			}
		})
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

// TestReplay is OutcomeOf: how a turn ended, by the events after its message.
func TestReplay(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		events [][2]string
		want   string
	}{
		"idle":     {[][2]string{{"assistant.message", `{"content":"hi"}`}, {"session.idle", `{}`}}, "TURN_STATUS_COMPLETED hi"},
		"an error": {[][2]string{{"session.error", `{}`}, {"session.idle", `{}`}}, "TURN_STATUS_FAILED "},
		"an abort": {[][2]string{{"abort", `{}`}, {"session.idle", `{}`}}, "TURN_STATUS_ABORTED "},
		"no end":   {[][2]string{{"assistant.message", `{"content":"hi"}`}}, "TURN_STATUS_RUNTIME_LOST hi"},
		"the next": {[][2]string{{"session.idle", `{}`}, {"assistant.message", `{"content":"no"}`}, {"abort", `{}`}, {"session.idle", `{}`}}, "TURN_STATUS_COMPLETED "},
		"a queued one": {[][2]string{{"user.message", `{"interactionId":"i1"}`}, {"assistant.message", `{"content":"hi"}`}, {"assistant.turn_end", `{}`},
			{"user.message", `{"interactionId":"i2"}`}, {"session.error", `{}`}}, "TURN_STATUS_COMPLETED hi"},
		"one of the next runtime": {[][2]string{{"user.message", `{"interactionId":"i1"}`}, {"assistant.turn_start", `{}`},
			{"user.message", `{"interactionId":"i2"}`}, {"assistant.message", `{"content":"no"}`}, {"session.idle", `{}`}}, "TURN_STATUS_RUNTIME_LOST "},
		"one between": {[][2]string{{"user.message", user("m2")}, {"assistant.message", `{"content":"both"}`}, {"session.idle", `{}`}}, "TURN_STATUS_COMPLETED both"},
	} {
		var events []*journal.Record
		for i, e := range c.events {
			events = append(events, &journal.Record{Type: e[0], Pos: journal.Position{Epoch: 7, Seq: uint64(i + 1)}, JSON: fmt.Appendf(nil, `{"type":%q,"data":%s}`, e[0], e[1])})
		}
		result, ended := Replay(slices.Values(events), nil)
		out := result.Proto()
		if got := out.GetStatus().String() + " " + out.GetText(); got != c.want || ended == (name == "no end") {
			t.Errorf("%s: %s, ended %v, want %s", name, got, ended, c.want)
		}
	}
}

// line makes the events of a script: "user m1 i1" is a message of an interaction, "steer" one that steers it, "auto" the
// CLI's own in autopilot mode; "say text" and "fail text" are the agent's message and an error, and "end" is the end of
// a step. Any other word is the type of an event.
func (d *driver) line(text string) {
	word, rest, _ := strings.Cut(text, " ")
	first, second, _ := strings.Cut(rest, " ")
	message := fmt.Sprintf(`"messageId":%q,"interactionId":%q`, first, second)
	switch word {
	case "user":
		d.play("user.message", "", "{"+message+`,"delivery":"queued"}`)
		d.play("assistant.turn_start", "", fmt.Sprintf(`{"interactionId":%q}`, second))
	case "next": // of the same call: the agent has not begun
		d.play("user.message", "", "{"+message+`,"delivery":"queued"}`)
	case "steer":
		d.play("user.message", "", "{"+message+`,"delivery":"steering"}`)
	case "auto":
		d.play("user.message", "", "{"+message+`,"delivery":"idle","isAutopilotContinuation":true}`)
		d.play("assistant.turn_start", "", fmt.Sprintf(`{"interactionId":%q}`, second))
	case "say":
		d.play("assistant.message", "", fmt.Sprintf(`{"content":%q}`, rest))
	case "sub":
		d.play("user.message", "a", `{"messageId":"inner","interactionId":"inner","delivery":"idle"}`)
		d.play("assistant.message", "a", `{"content":"inner"}`)
	case "fail":
		d.play("session.error", "", fmt.Sprintf(`{"message":%q}`, rest))
	case "end":
		d.play("assistant.turn_end", "", "{}")
	case "lose":
		_, effects := d.m.Lose(runtimeLost, d.at())
		d.carryOut(effects)
	default:
		d.play(word, "", "{}")
	}
}

// result is an outcome as a table shows it: its status, its text, the reason of a failure and where it ends.
func result(w *Waiter) string {
	if !w.Over() {
		return "waits"
	}
	out := w.Outcome().Proto()
	text := strings.TrimPrefix(out.GetStatus().String(), "TURN_STATUS_")
	if out.GetText() != "" {
		text += " " + out.GetText()
	}
	if out.GetStatus() == failed {
		text += " because " + out.GetError().GetMessage()
	}
	return fmt.Sprintf("%s at %d", text, out.GetEndPosition().GetSeq())
}

// TestEachMessageHasItsOutcome has messages that wait in the CLI's queue, steer, or come while others run: each has the
// outcome of its own turn. The ids of messages are known before the CLI takes them up, or only at the end.
func TestEachMessageHasItsOutcome(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		want   []string // of m1, m2 and so on
		ends   int      // turns whose end was told
	}{
		"the second fails": {"user m1 i1, say A1, end, user m2 i2, end, fail no, session.idle",
			[]string{"COMPLETED A1 at 4", "FAILED because no at 8"}, 2},
		"the second answers": {"user m1 i1, say A1, end, user m2 i2, say A2, end, session.idle",
			[]string{"COMPLETED A1 at 4", "COMPLETED A2 at 9"}, 2},
		"the second says nothing": {"user m1 i1, say A1, end, user m2 i2, end, session.idle",
			[]string{"COMPLETED A1 at 4", "COMPLETED at 8"}, 2},
		"the first fails, three": {"user m1 i1, end, fail no, user m2 i2, say A2, end, user m3 i3, say A3, end, session.idle",
			[]string{"FAILED because no at 4", "COMPLETED A2 at 8", "COMPLETED A3 at 13"}, 3},
		"all fail": {"user m1 i1, end, fail a, user m2 i2, end, fail b, session.idle",
			[]string{"FAILED because a at 4", "FAILED because b at 8"}, 2},
		"a tool between": {"user m1 i1, say calling, end, assistant.turn_start, say A1, end, user m2 i2, say A2, end, session.idle",
			[]string{"COMPLETED A1 at 7", "COMPLETED A2 at 12"}, 2},
		"one steers": {"user m1 i1, say calling, end, assistant.turn_start, steer m2 i1, say both, end, session.idle",
			[]string{"COMPLETED both at 9", "COMPLETED both at 9"}, 1},
		"one steers into a failure": {"user m1 i1, say calling, end, assistant.turn_start, steer m2 i1, end, fail no",
			[]string{"FAILED calling because no at 8", "FAILED because no at 8"}, 1},
		"one steers too late": {"user m1 i1, say A1, end, user m2 i2, say A2, end, user m3 i3, end, fail no, session.idle",
			[]string{"COMPLETED A1 at 4", "COMPLETED A2 at 8", "FAILED because no at 12"}, 3},
		"one steers the second": {"user m1 i1, say A1, end, user m2 i2, steer m3 i2, say A2, end, session.idle",
			[]string{"COMPLETED A1 at 4", "COMPLETED A2 at 10", "COMPLETED A2 at 10"}, 2},
		"an abort": {"user m1 i1, say A1, end, user m2 i2, say begun, abort, end, session.idle",
			[]string{"COMPLETED A1 at 4", "ABORTED begun at 10", "ABORTED at 10"}, 2},
		"the runtime is lost": {"user m1 i1, say A1, end, user m2 i2, say begun, lose",
			[]string{"COMPLETED A1 at 4", "RUNTIME_LOST begun at 7", "waits"}, 2},
		"messages of one call": {"user m1 i1, say A1, end, next m2 i2, user m3 i2, say A3, end, session.idle",
			[]string{"COMPLETED A1 at 4", "COMPLETED A3 at 10", "COMPLETED A3 at 10"}, 2},
		"autopilot continues": {"user m1 i1, say working, end, assistant.idle, auto m0 i2, say still, end, user m2 i3, say A2, end, session.idle",
			[]string{"COMPLETED still at 9", "COMPLETED A2 at 14"}, 2},
		"a sub-agent works": {"user m1 i1, sub, say A1, end, user m2 i2, sub, say A2, end, session.idle",
			[]string{"COMPLETED A1 at 6", "COMPLETED A2 at 13"}, 2},
		"an agent in the background ends": {"user m1 i1, say A1, end, assistant.idle, user m2 i2, say A2, end, assistant.idle, " +
			"system.notification, assistant.turn_start, say news, end, session.idle",
			[]string{"COMPLETED A1 at 5", "COMPLETED news at 15"}, 2},
		"a notification begins a turn that fails": {"user m1 i1, say A1, end, session.idle, assistant.turn_start, end, fail no",
			[]string{"COMPLETED A1 at 5"}, 2},
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, ids late %v", name, late), func(t *testing.T) {
				t.Parallel()
				d := newDriver()
				var all []*Waiter
				for range c.want {
					w := d.expect()
					w.Entry = uint64(len(all) + 1)
					d.m.Accept(w, d.now)
					all = append(all, w)
				}
				identify := func() {
					for i, w := range all {
						d.carryOut(d.m.Identify(w, fmt.Sprint("m", i+1)))
					}
				}
				if !late {
					identify()
				}
				for _, line := range strings.Split(c.script, ", ") {
					d.line(line)
				}
				if late && !strings.Contains(c.script, "abort") && !strings.Contains(c.script, "lose") {
					identify()
				} else if late {
					return
				}
				for i, want := range c.want {
					if got := result(all[i]); got != want {
						t.Errorf("m%d: %s, want %s", i+1, got, want)
					}
				}
				if d.ended != c.ends {
					t.Errorf("%d ends told, want %d", d.ended, c.ends)
				}
				if strings.HasPrefix(name, "a notification") && d.last.Message != nil {
					t.Error("the turn of the notification has the answer of the one before")
				}
			})
		}
	}
}

// A message that nobody has sent, as when a hook sends the agent back to work, continues the turn, also if a prompt waits
// behind it.
func TestMessageOfTheCLIContinuesTheTurn(t *testing.T) {
	t.Parallel()
	d := newDriver()
	first := d.sent("m1")
	for _, line := range strings.Split("user m1 i1, say A1, end, user y i2, say checked, end", ", ") {
		d.line(line)
	}
	second := d.sent("m2")
	for _, line := range strings.Split("user m2 i3, say A2, end, session.idle", ", ") {
		d.line(line)
	}
	for w, want := range map[*Waiter]string{first: "COMPLETED checked at 8", second: "COMPLETED A2 at 13"} {
		if got := result(w); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if d.ended != 2 {
		t.Errorf("%d ends told, want 2", d.ended)
	}
}

// TestRecoveredMessageIsKnown: a message of an earlier process is known by its ids. One of the CLI's own is none of them, and does
// not end the turn that runs.
func TestRecoveredMessageIsKnown(t *testing.T) {
	t.Parallel()
	d := newDriver()
	first := d.sent("m1")
	d.m.Recover(d.expect(), "m2", "m3")
	for _, line := range strings.Split("user m1 i1, say A1, end, user y i2, say checked, end, session.idle", ", ") {
		d.line(line)
	}
	if got, want := result(first), "COMPLETED checked at 9"; got != want || d.ended != 1 {
		t.Errorf("%s, want %s; %d ends told", got, want, d.ended)
	}
}

// TestErrorsBeforeTheirMessage: an error that names a message ends that message alone, and one that names none all that
// wait.
func TestErrorsBeforeTheirMessage(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		`{"message":"no","originatingMessageId":"m2"}`: {"waits", "FAILED because no at 1"},
		`{"message":"no"}`: {"FAILED because no at 1", "FAILED because no at 1"},
	} {
		d := newDriver()
		all := []*Waiter{d.sent("m1"), d.sent("m2")}
		d.play("session.error", "", name)
		for i, w := range all {
			if got := result(w); got != want[i] {
				t.Errorf("%s, m%d: %s, want %s", name, i+1, got, want[i])
			}
		}
	}
}

// TestLostTurnHasNoOldAnswer: a prompt that was not taken up does not show the answer of the turn before it.
func TestLostTurnHasNoOldAnswer(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*driver) Outcome{
		"its runtime is lost": func(d *driver) Outcome {
			out, effects := d.m.Lose(aborted, d.at())
			d.carryOut(effects)
			return *out
		},
		"it stalls": func(d *driver) Outcome {
			w := d.sent("m3")
			d.carryOut(d.m.GiveUp(d.at()))
			return w.Outcome()
		},
		"it is aborted": func(d *driver) Outcome {
			w := d.sent("m3")
			d.play("session.idle", "", `{"aborted":true}`)
			return w.Outcome()
		},
	} {
		d := newDriver()
		for _, line := range []string{"user m1 i1", "say A1", "end", "session.idle"} {
			d.line(line)
		}
		w := d.sent("m2")
		if out := end(d); out.Message != nil || w.Outcome().Message != nil {
			t.Errorf("%s: the outcome is %v", name, out.Proto())
		}
	}
}

// TestUnnamedMessages: CLI 1.0.81 does not tell which message it takes up: those that steer come before the others.
func TestUnnamedMessages(t *testing.T) {
	t.Parallel()
	d := newDriver()
	var all []*Waiter
	for n := range 4 {
		w := d.expect()
		w.Immediate = n == 3
		d.m.Accept(w, d.now)
		d.carryOut(d.m.Identify(w, fmt.Sprint("m", n+1)))
		all = append(all, w)
	}
	turn := func(delivery, interaction, text string) {
		d.play("user.message", "", fmt.Sprintf(`{"delivery":%q,"interactionId":%q}`, delivery, interaction))
		d.line("assistant.turn_start")
		d.play("assistant.message", "", fmt.Sprintf(`{"content":%q}`, text))
		d.line("end")
	}
	turn("idle", "i1", "A1")
	turn("steering", "i2", "A4")
	turn("queued", "i3", "A2")
	d.play("user.message", "", `{"delivery":"idle","interactionId":"i3","isAutopilotContinuation":true}`)
	turn("queued", "i4", "A3")
	d.line("session.idle")
	for i, want := range []string{"COMPLETED A1 at 4", "COMPLETED A2 at 13", "COMPLETED A3 at 18", "COMPLETED A4 at 8"} {
		if got := result(all[i]); got != want {
			t.Errorf("m%d: %s, want %s", i+1, got, want)
		}
	}
}

// TestBusyBetweenTurns: between the end of a turn and the message that the CLI takes up next, the session is busy: the
// CLI has not written the turn yet.
func TestBusyBetweenTurns(t *testing.T) {
	t.Parallel()
	d := newDriver()
	w := d.sent("m1")
	for _, line := range []string{"user m1 i1", "say A1", "end"} {
		d.line(line)
	}
	next := d.expect() // of another caller, without a reply so far
	rec := &journal.Record{Type: "user.message", JSON: []byte(`{"data":{"messageId":"m2","interactionId":"i2"}}`)}
	d.carryOut(d.m.Precede(rec, d.at()))
	if !w.Over() || !d.m.Busy() {
		t.Errorf("between the turns: over %v, busy %v", w.Over(), d.m.Busy())
	}
	d.seq++
	rec.Pos = d.at()
	d.carryOut(d.m.Apply(rec, d.now))
	if d.line("session.idle"); d.m.Busy() {
		t.Error("a session at rest is busy")
	}
	d.m.Drop(next)
}

// TestTurnThatIsAskedAboutEnds: the turn may end while the CLI is asked whether it goes on; only one that is aborted for
// its silence has stalled.
func TestTurnThatIsAskedAboutEnds(t *testing.T) {
	t.Parallel()
	for abandoned, want := range map[bool]string{false: "COMPLETED A1 at 5", true: "STALLED A1 at 5"} {
		d := newDriver()
		w := d.sent("m1")
		for _, line := range []string{"user m1 i1", "say A1", "end"} {
			d.line(line)
		}
		if d.m.SetStalling(true); abandoned {
			d.m.Abandon()
		}
		if d.line("session.idle"); result(w) != want {
			t.Errorf("abandoned %v: %s, want %s", abandoned, result(w), want)
		}
	}
}

// TestContinue: a load leaves no turn running but the one that the CLI goes on with. A turn of this process is not its affair.
func TestContinue(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		running   bool
		prompt    bool // of a caller has begun it
		unnamed   bool // the reply to the prompt comes later
		goesOn    []bool
		want, own bool
	}{
		"nothing runs":                 {goesOn: []bool{false}},
		"an earlier turn goes on":      {goesOn: []bool{true}, want: true},
		"an earlier turn went on":      {goesOn: []bool{true, false}},
		"a turn of this process":       {running: true, goesOn: []bool{false}, want: true, own: true},
		"it goes on as an earlier one": {running: true, goesOn: []bool{true, false}},
		"a prompt's turn waits":        {running: true, prompt: true, goesOn: []bool{true}, want: true, own: true},
		"a prompt's turn, no reply":    {running: true, unnamed: true, goesOn: []bool{true}, want: true, own: true},
	} {
		d := newDriver()
		if tc.prompt {
			d.sent("m1")
		} else if tc.unnamed {
			d.expect()
		}
		if tc.running {
			d.play("user.message", "", `{"messageId":"m1"}`)
		}
		for _, goesOn := range tc.goesOn {
			d.m.Continue(goesOn)
		}
		if d.m.Busy() != tc.want || d.m.Continuing() != (tc.want && !tc.own) {
			t.Errorf("%s: busy %v, continuing %v", name, d.m.Busy(), d.m.Continuing())
		}
	}
}

// TestLose: a turn that runs ends once. One that is about to begin ends if the use of the session does, and may have begun
// if the runtime is lost, which only the history knows.
func TestLose(t *testing.T) {
	t.Parallel()
	idle := func(*driver) {}
	accepted := func(d *driver) { d.sent("m1") }
	running := func(d *driver) { accepted(d); d.play("user.message", "", user("m1")) }
	for name, tc := range map[string]struct {
		before func(*driver)
		status bridgev1.TurnStatus
		ends   bool
	}{
		"nothing, lost":     {idle, runtimeLost, false},
		"nothing, aborted":  {idle, aborted, false},
		"accepted, lost":    {accepted, runtimeLost, false},
		"accepted, aborted": {accepted, aborted, true},
		"a turn, lost":      {running, runtimeLost, true},
		"a turn, aborted":   {running, aborted, true},
	} {
		d := newDriver()
		tc.before(d)
		out, effects := d.m.Lose(tc.status, d.at())
		d.carryOut(effects)
		if told := d.ended == 1 && d.last.Status == tc.status; told != tc.ends || (out != nil) != tc.ends {
			t.Errorf("%s: the outcome is %v, %d ends are told", name, out, d.ended)
		}
		if d.m.Busy() {
			t.Errorf("%s: it is busy", name)
		}
		if _, effects := d.m.Lose(tc.status, d.at()); slices.ContainsFunc(effects, func(e Effect) bool { return e.Kind == Ended }) {
			t.Errorf("%s: it ends again", name)
		}
	}
}

// TestLoseBehindAnAbort: a message that an abort has removed ends as aborted with its runtime, unless the agent had it.
func TestLoseBehindAnAbort(t *testing.T) {
	t.Parallel()
	for _, taken := range []bool{false, true} {
		for status, want := range map[bridgev1.TurnStatus]bridgev1.TurnStatus{runtimeLost: runtimeLost, aborted: aborted} {
			d := newDriver()
			w := d.sent("m1")
			d.m.Remove(w)
			if taken {
				d.play("user.message", "", user("m1"))
			} else {
				want = aborted
			}
			_, effects := d.m.Lose(status, d.at())
			if d.carryOut(effects); !w.Over() || w.Outcome().Status != want || w.Outcome().End != d.at() {
				t.Errorf("taken up %v, the end is %v: over %v, %+v", taken, status, w.Over(), w.Outcome())
			}
		}
	}
}

// TestLoseBeforeTheID: a message that was taken up before its id was known ends with the turn that was lost.
func TestLoseBeforeTheID(t *testing.T) {
	t.Parallel()
	for id, over := range map[string]bool{"m1": true, "m2": false} {
		d := newDriver()
		w := d.expect()
		w.Entry = 1
		d.m.Accept(w, d.now)
		d.play("user.message", "", user("m1"))
		_, effects := d.m.Lose(runtimeLost, d.at())
		d.carryOut(effects)
		d.carryOut(d.m.Identify(w, id))
		if w.Over() != over || over && (w.Outcome().Status != runtimeLost || w.Outcome().Err != nil) {
			t.Errorf("%s: over %v, %+v", id, w.Over(), w.Outcome())
		}
	}
}

// TestAnAcceptedMessageIsHeard: the time limits begin anew with the CLI's reply to a message.
func TestAnAcceptedMessageIsHeard(t *testing.T) {
	t.Parallel()
	d := newDriver()
	now := d.now.Add(time.Hour)
	d.m.Accept(d.expect(), now)
	if got := d.m.LastEvent(); !got.Equal(now) {
		t.Errorf("the last event was at %v, want %v", got, now)
	}
}
