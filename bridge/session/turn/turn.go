// Package turn follows the turns of a session by its events: the begin and end of a turn, its outcome, and the
// messages that wait for its end.
//
// A turn is what the agent does for one message. The CLI calls that an interaction and says only once that the session
// is idle, after the last message of its queue. So a turn ends with an error, when the CLI takes up a message of another
// interaction, or when the session is idle, whichever comes first. To a turn belong the messages that steer it, the
// messages of one call, what the CLI tells the agent by itself, and the interactions with which the CLI continues it: in
// autopilot mode, or because a hook sends the agent back to work.
//
// Machine is a pure state machine without a lock, clock, timer or goroutine. The session calls it under its
// mutex and passes the time. A call returns effects; the session carries them out in order before the next
// call. The holder of a Waiter can wait for it without the lock.
package turn

import (
	"cmp"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Statuses of outcomes that the machine gives itself.
const (
	completed   = bridgev1.TurnStatus_TURN_STATUS_COMPLETED
	aborted     = bridgev1.TurnStatus_TURN_STATUS_ABORTED
	failed      = bridgev1.TurnStatus_TURN_STATUS_FAILED
	stalled     = bridgev1.TurnStatus_TURN_STATUS_STALLED
	runtimeLost = bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST
)

// Effect is what the session carries out after a call.
type Effect struct {
	Kind EffectKind
	// Outcome is of Ended, Finished and Rested.
	Outcome Outcome
	// Waiter is of Finished.
	Waiter *Waiter
	// Span is of Begun: that of the message that began the turn; nil if none is known.
	Span *observe.Span
}

// EffectKind says what an effect is.
type EffectKind uint8

// The kinds of effects.
const (
	// Begun: a turn has begun.
	Begun EffectKind = iota + 1
	// Ended: the turn has ended. There is one for each turn.
	Ended
	// Finished: a waiter has its outcome. The session calls its Wake.
	Finished
	// Rested: the CLI has said that the session is idle, or has gone on to the next message after an abort.
	Rested
)

// Classifier gives the reason of an error that ended a turn, if one is known by its message,
// and a message that says what to do about it.
type Classifier func(message string) (fault.Reason, string)

// Machine is the state of a session's turn. Make one with New.
type Machine struct {
	// Bounds are the bounds of New with defaults. They do not change.
	Bounds   Bounds
	classify Classifier

	running bool
	tools   int // tool executions begun and not ended
	aborted bool
	failing bool            // an error has ended the turn for its waiters; the CLI is not idle yet
	message *journal.Record // the agent's last message of the turn
	// interaction is the id of the interaction that runs, "" if it is not known.
	interaction string
	// stepped: the agent's last step, a request to the model with its tool calls, has ended.
	stepped bool
	// lastEvent is when something was last heard; outstandingAt when something was last seen
	// to be outstanding.
	lastEvent, outstandingAt time.Time
	// calling are the agents that wait for a model; the session's own has no name.
	calling map[string]struct{}
	// resting: the agent has come to rest, which the CLI says before it says so of the
	// session, whose background tasks may go on.
	resting bool
	// continuing: an earlier runtime began the turn. CLI 1.0.81 may lose it in a resume
	// that leaves its event.
	continuing bool
	// stalling: the CLI is asked whether the turn goes on, or abandoned: it does not, and is being aborted.
	stalling, abandoned bool
	// ended: the turn's end has been told.
	ended bool
	// goesOn: the turn has ended because the CLI takes another message up, whose event is about to be applied.
	goesOn  bool
	waiters []*Waiter

	effects []Effect // of the call that is being made
}

// New returns the machine of a session in which no turn runs.
func New(bounds Bounds, classify Classifier) *Machine {
	return &Machine{Bounds: bounds.WithDefaults(), classify: classify}
}

// add adds an effect to those of the call that is being made: most calls with effects have up to three.
func (m *Machine) add(e Effect) {
	if m.effects == nil {
		m.effects = make([]Effect, 0, 3)
	}
	m.effects = append(m.effects, e)
}

// take returns the effects of a call. Those of the next call of the same turn take their memory.
func (m *Machine) take() []Effect {
	effects := m.effects
	if len(effects) == 0 {
		return nil
	}
	m.effects = effects[:0]
	if !m.running {
		m.effects = nil
	}
	return effects
}

// Apply takes an event of the session, which came at a time.
func (m *Machine) Apply(rec *journal.Record, at time.Time) []Effect {
	m.lastEvent = at
	switch rec.Type {
	case "model.call_start":
		if m.calling == nil {
			m.calling = map[string]struct{}{}
		}
		m.calling[rec.Agent] = struct{}{}
		return nil
	case "model.call_finished":
		delete(m.calling, rec.Agent)
		return nil
	case "assistant.turn_end":
		delete(m.calling, rec.Agent)
	}
	if rec.Agent != "" { // sub-agents have no turns
		return nil
	}
	switch rec.Type {
	case "user.message":
		m.userMessage(rec)
	case "assistant.turn_start":
		m.begin(rec)
		m.stepped = false
	case "assistant.turn_end":
		m.stepped = true
	case "assistant.idle":
		m.resting = m.running
	case "assistant.message":
		m.message = rec
	case "tool.execution_start":
		m.tools++
	case "tool.execution_complete":
		m.tools = max(0, m.tools-1)
	case "abort":
		m.abort()
	case "session.error":
		m.fail(rec)
	case "session.idle":
		m.idle(rec)
	default:
		return nil
	}
	return m.take()
}

// end tells the end of the turn that runs, unless that has been told.
func (m *Machine) end(out Outcome) {
	if m.running && !m.ended {
		m.ended = true
		m.add(Effect{Kind: Ended, Outcome: out})
	}
}

// finish gives a waiter its outcome.
func (m *Machine) finish(w *Waiter, out Outcome) {
	w.finished, w.out = true, out
	m.Drop(w)
	m.add(Effect{Kind: Finished, Outcome: out, Waiter: w})
}

// decide gives a waiter its outcome, and reports whether it has one now. A message whose reply was read, and whose id is still to come,
// may have had an earlier turn, which has ended: the id tells.
func (m *Machine) decide(w *Waiter, out Outcome) bool {
	if w.accepted && !w.known && !w.begun && slices.ContainsFunc(w.seen, func(t seen) bool { return t.over }) {
		w.left = cmp.Or(w.left, &out)
		return false
	}
	m.finish(w, out)
	return true
}

// begin begins a turn with an event, unless one runs. After a failure the agent works on something else.
func (m *Machine) begin(rec *journal.Record) {
	began := !m.running || m.failing
	m.running, m.failing, m.resting, m.goesOn = true, false, false, false
	if began {
		m.message, m.interaction, m.aborted, m.ended, m.stepped = nil, "", false, false, false
		m.tools = 0 // the CLI does not tell the ends of those that an abort or an error has ended
		m.add(Effect{Kind: Begun, Span: m.Span()})
	}
	m.interaction = cmp.Or(event.Text(rec, "interactionId"), m.interaction)
}

// Precede ends the turn that runs if a message begins another. It comes before the journal, whose last position is
// last, and Apply have the message, so that readers learn of the end first. For a message of the past, Apply alone ends
// the turn and does not tell.
func (m *Machine) Precede(rec *journal.Record, last journal.Position) []Effect {
	if rec.Type != "user.message" || rec.Agent != "" || !m.passes(rec) {
		return nil
	}
	if m.prompted(event.Text(rec, "messageId")) {
		m.pass(completed, last)
	} else { // the CLI's own message, as when a hook sends the agent back to work
		m.interaction = event.Text(rec, "interactionId")
	}
	return m.take()
}

// prompted reports whether a message that the agent takes up may be a prompt that waits; id may be empty.
func (m *Machine) prompted(id string) bool {
	return slices.ContainsFunc(m.waiters, func(w *Waiter) bool {
		return !w.begun && (id == "" || !w.known || w.messageID == id || slices.Contains(w.earlier, id))
	})
}

// passes reports whether a message ends the turn that runs.
func (m *Machine) passes(rec *journal.Record) bool {
	if !m.running || m.failing {
		return false
	}
	next := event.Text(rec, "interactionId")
	if m.interaction == "" { // the turn of an earlier runtime, before this one has gone on with it
		return m.continuing && m.aborted && next != ""
	}
	return next != "" && next != m.interaction && !continuation(rec)
}

// continuation reports whether the CLI sent a message itself, to continue in autopilot mode.
func continuation(rec *journal.Record) bool {
	return string(event.Member(rec, "isAutopilotContinuation")) == "true"
}

// pass ends a turn, whose last event is at end, because the CLI takes up another message.
func (m *Machine) pass(status bridgev1.TurnStatus, end journal.Position) {
	if m.aborted {
		status = aborted
	}
	out := Outcome{Status: status, Message: m.message, End: end}
	m.conclude(out, func(w *Waiter) bool { return w.begun && !w.untilRest })
	if status == aborted {
		m.add(Effect{Kind: Rested, Outcome: out})
	}
	m.running, m.continuing, m.goesOn = false, false, true // sub-agents may go on in the background
}

// userMessage notes that the agent took a message up.
func (m *Machine) userMessage(rec *journal.Record) {
	if m.passes(rec) { // the turn is of the past: if its step has no end, its runtime ended in it
		m.ended = true
		status := runtimeLost
		if m.stepped {
			status = completed
		}
		m.pass(status, journal.Position{Epoch: rec.Pos.Epoch, Seq: rec.Pos.Seq - 1})
	}
	m.begin(rec)
	id := event.Text(rec, "messageId")
	taken := m.takenUp(rec, id)
	m.leaveBehind(taken, journal.Position{Epoch: rec.Pos.Epoch, Seq: rec.Pos.Seq - 1})
	if taken != nil {
		taken.take(rec.Pos)
	}
	if id == "" {
		return
	}
	for _, w := range m.waiters {
		if !w.known {
			w.seen = append(w.seen, seen{id: id, at: rec.Pos})
		}
	}
}

// takenUp returns the waiter of a message that the agent takes up, with an id that may be empty; nil if none is known.
// CLI 1.0.81 does not tell the id: what the message says and the order tell. It takes messages up in the order in which
// they came, those that steer before all others.
func (m *Machine) takenUp(rec *journal.Record, id string) *Waiter {
	if id != "" {
		return m.first(func(w *Waiter) bool { return w.known && w.messageID == id })
	}
	if continuation(rec) {
		return nil
	}
	steers, text := event.Text(rec, "delivery") == "steering", event.Text(rec, "content")
	waits := func(w *Waiter) bool { return !w.begun && !w.aborted }
	says := func(w *Waiter) bool { return waits(w) && w.Prompt != nil && jsonobj.Text(w.Prompt) == text }
	return cmp.Or(
		m.first(func(w *Waiter) bool { return says(w) && w.Immediate == steers }), m.first(says),
		m.first(func(w *Waiter) bool { return waits(w) && w.Immediate == steers }), m.first(waits))
}

// first returns the first waiter of a kind; nil if there is none.
func (m *Machine) first(is func(*Waiter) bool) *Waiter {
	if i := slices.IndexFunc(m.waiters, is); i >= 0 {
		return m.waiters[i]
	}
	return nil
}

// leaveBehind ends the messages that an abort has removed: the CLI, which says that it is idle only if no message
// comes before, has taken up one behind a position. taken is that one's waiter, if it is known.
func (m *Machine) leaveBehind(taken *Waiter, end journal.Position) {
	at := slices.Index(m.waiters, taken)
	for i, w := range m.waiters {
		// Messages are taken up in the order in which they came, and those that steer before all others.
		overtaken := w.doubtful && w.accepted && i < at && taken.Immediate == w.Immediate
		switch {
		case w.begun || w.unconfirmed || w == taken || !w.aborted && !overtaken:
		case w.known:
			m.finish(w, Outcome{Status: aborted, End: end})
		case w.left == nil:
			w.left = &Outcome{Status: aborted, End: end}
		}
	}
}

// LoggedError is the type of an error that a client wrote into the timeline.
const LoggedError = "notification"

// fail ends the turn with an error: an idle event does not always follow. The CLI goes on with what is queued behind
// it. An error that comes when no turn runs is of the message that it names, else of all that wait.
func (m *Machine) fail(rec *journal.Record) {
	var d struct {
		ErrorType, Message   string
		OriginatingMessageID string
		StatusCode           *int32
	}
	event.Data(rec, &d)
	if d.ErrorType == LoggedError {
		return
	}
	m.failing = m.running
	why, text := fault.None, d.Message
	if m.classify != nil {
		why, text = m.classify(d.Message)
	}
	out := Outcome{Status: failed, Message: m.message, End: rec.Pos, Error: &bridgev1.TurnError{
		ErrorType: d.ErrorType, Message: text, StatusCode: d.StatusCode, Reason: why,
		Position: &bridgev1.Position{Epoch: rec.Pos.Epoch, Seq: rec.Pos.Seq},
	}}
	m.conclude(out, func(w *Waiter) bool {
		named := w.known && w.messageID != "" && w.messageID == d.OriginatingMessageID
		return !w.untilRest && (w.begun || named || !m.running && d.OriginatingMessageID == "")
	})
}

// idle ends the turn.
func (m *Machine) idle(rec *journal.Record) {
	byUser := string(event.Member(rec, "aborted")) == "true"
	out := Outcome{Status: completed, Message: m.message, End: rec.Pos}
	switch {
	case m.abandoned:
		out.Status = stalled
	case m.aborted || byUser:
		out.Status = aborted
	}
	m.rest(out)
	m.add(Effect{Kind: Rested, Outcome: out})
}

// abort notes that the turn is being aborted, with the messages that the CLI has accepted. It answers messages that come
// before it says that it is idle, and takes them up afterwards. A message whose answer is still to come may have come
// before the abort or behind it.
func (m *Machine) abort() {
	m.aborted = true
	for _, w := range m.waiters {
		w.aborted = w.aborted || w.accepted
		w.doubtful = w.doubtful || !w.accepted
	}
}

// rest ends the turn: the agent has come to rest. An abort also drops messages that were never taken up.
func (m *Machine) rest(out Outcome) {
	dropped := func(w *Waiter) bool {
		return out.Status == stalled || out.Status == aborted && (w.aborted || !m.aborted)
	}
	m.conclude(out, func(w *Waiter) bool { return w.begun || dropped(w) })
	m.reset()
}

// conclude tells the end of the turn, and gives the waiters that it ends their outcome.
func (m *Machine) conclude(out Outcome, ends func(*Waiter) bool) {
	m.end(out)
	for _, w := range m.waiters {
		switch {
		case w.unconfirmed:
		case w.accepted && ends(w) && m.decide(w, w.own(out)):
		case !w.known:
			w.note(out)
		}
	}
}

// reset makes ready for the next turn.
func (m *Machine) reset() {
	m.running, m.failing, m.aborted, m.ended, m.goesOn, m.tools = false, false, false, false, false, 0
	m.resting, m.stalling, m.abandoned, m.continuing = false, false, false, false
	m.message = nil
	clear(m.calling)
}

// Rest ends a turn whose agent has come to rest, as its idle event at a position would have
// said.
func (m *Machine) Rest(at journal.Position) []Effect {
	out := Outcome{Status: completed, Message: m.message, End: at, Silent: true}
	if m.aborted {
		out.Status = aborted
	}
	m.rest(out)
	for _, w := range m.waiters {
		if m.missing(w) {
			m.decide(w, Outcome{Status: aborted, End: at})
		}
	}
	m.add(Effect{Kind: Rested, Outcome: out})
	return m.take()
}

// GiveUp ends a turn that has stalled.
func (m *Machine) GiveUp(at journal.Position) []Effect {
	m.rest(Outcome{Status: stalled, Message: m.message, End: at})
	return m.take()
}

// Lose ends the turn because its runtime, or the session's use, has ended. It returns the
// outcome of the turn that ran or was about to; nil if there was none. Messages whose fate
// only the history knows stay unconfirmed if the runtime was lost.
func (m *Machine) Lose(status bridgev1.TurnStatus, at journal.Position) (*Outcome, []Effect) {
	out := Outcome{Status: status, Message: m.message, End: at}
	silent := status == runtimeLost
	was := m.running || m.Busy() && !silent
	m.running = was
	m.end(out)
	for _, w := range m.waiters {
		switch {
		case silent && w.removed && !w.begun && m.decide(w, Outcome{Status: aborted, End: at}):
		case silent && w.doubt():
			w.note(out)
		default:
			m.finish(w, w.own(out))
		}
	}
	m.reset()
	if !was {
		return nil, m.take()
	}
	return &out, m.take()
}

// LosePast is Lose for turns of the past that a load found in the history: their end is not
// told again.
func (m *Machine) LosePast(at journal.Position) []Effect {
	m.ended = true
	_, effects := m.Lose(runtimeLost, at)
	return effects
}

// Continue notes that a load has found whether the CLI goes on with an earlier runtime's turn: as far as the history shows,
// and then as far as the CLI says. A prompt's turn that has begun since is none of an earlier runtime: what the CLI waits for
// is of that turn.
func (m *Machine) Continue(goesOn bool) {
	own := m.running && !m.continuing && slices.ContainsFunc(m.waiters, (*Waiter).mayHaveBegun)
	m.running = m.running && !m.continuing || goesOn
	m.continuing = goesOn && !own
}

// Continuing reports whether the turn was begun by an earlier runtime.
func (m *Machine) Continuing() bool { return m.continuing }

// Busy reports whether a turn runs, or is about to: the CLI has accepted a message, or takes one up, and the event that
// says so is still to come.
func (m *Machine) Busy() bool {
	return m.running || m.goesOn || slices.ContainsFunc(m.waiters, func(w *Waiter) bool { return w.accepted && !w.unconfirmed })
}

// Failing reports whether the turn has failed and the CLI has not said yet that it is idle.
func (m *Machine) Failing() bool { return m.failing }

// Waiting reports whether there are waiters.
func (m *Machine) Waiting() bool { return len(m.waiters) > 0 }

// Span is the span of the turn's first message, as far as that is known; nil if none has one.
func (m *Machine) Span() *observe.Span {
	var accepted *observe.Span
	for _, w := range m.waiters {
		switch {
		case w.Span == nil:
		case w.begun:
			return w.Span
		case w.accepted && accepted == nil:
			accepted = w.Span
		}
	}
	return accepted
}
