package session

import (
	"context"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/observe"
	"github.com/copilot-grpc/copilot-grpc/internal/reason"
)

// turn follows what the session's agent is doing, from its events. It is guarded by
// the session's mu.
type turn struct {
	running   bool
	tools     int // tool executions begun and not ended
	aborted   bool
	failing   bool            // an error has ended it, as far as anybody waits for it
	message   *journal.Record // the agent's last message
	lastEvent time.Time
	waited    time.Time // when something was last seen to be outstanding
	// calling are the agents that wait for a model; the session's own has no name.
	calling map[string]struct{}
	// rested: the agent has come to rest, which the CLI tells before it says so of the
	// session, whose background tasks may go on.
	rested bool
	// continuing: an earlier runtime began the turn. CLI 1.0.81 may lose it in a resume
	// that leaves its event.
	continuing bool
	// stalling: the turn is being given up, so that its end is no ordinary one.
	stalling bool
	waiters  []*Waiter
	// begun hears of each turn's beginning; began is when that was, and own the span of a
	// turn that no message of ours began. begun may be nil.
	begun func()
	began time.Time
	own   *observe.Span
	// over hears of each turn's end, once; told says that it has heard of this one's.
	over func(Outcome)
	told bool
}

// TurnOver is the note that a turn has ended.
type TurnOver struct {
	Outcome Outcome
	// IDs are of messages that are not part of the conversation, and Err why; none else.
	IDs []string
	Err error
}

// tell tells of the end of the turn that runs, unless that has been told.
func (t *turn) tell(out Outcome) {
	if t.running && !t.told {
		t.told = true
		t.over(out)
	}
}

// Waiter waits for the end of the turn that a message begins. A turn that takes several
// messages ends once, for all of them.
type Waiter struct {
	s *Session
	// accepted: the CLI has replied, so that the turn's end can come. The reply's id is
	// known (messageID) only a little later.
	accepted, known bool
	messageID       string
	// begun: the message was taken up.
	begun bool
	// doubt: the runtime ended before the message was seen to be taken up; settled: it is
	// known by now that it was not.
	doubt, settled bool
	// all: it waits until the agent has come to rest, whatever fails before.
	all bool
	// seen are the messages taken up before the id was known, each with the end of its
	// turn if that came too.
	seen map[string]*Outcome
	done chan struct{}
	out  Outcome
	// span is that of the message; nil if it waits for others' turns.
	span *observe.Span
	// entry is its prompt's in the outbox; 0 if it waits for others' turns.
	entry uint64
}

// Outcome is how a turn ended.
type Outcome struct {
	Status  bridgev1.TurnStatus
	Error   *bridgev1.TurnError
	Message *journal.Record
	End     journal.Position
	// Err is set when there was no turn: the message was accepted and lost.
	Err error
}

// EndedTurn returns a waiter for a turn that has ended.
func EndedTurn(out Outcome) *Waiter {
	w := &Waiter{out: out, done: make(chan struct{})}
	close(w.done)
	return w
}

// newWaiter registers a waiter; it must be made before the message is sent.
func (s *Session) newWaiter() *Waiter { return s.newSpanWaiter(nil) }

// newSpanWaiter is newWaiter for a message with that span.
func (s *Session) newSpanWaiter(span *observe.Span) *Waiter {
	w := &Waiter{s: s, span: span, done: make(chan struct{}), seen: map[string]*Outcome{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn.waiters = append(s.turn.waiters, w)
	return w
}

// accept tells the waiter that the CLI has replied. It runs when the reply is read, in
// order with events.
func (w *Waiter) accept() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.accepted = true
	w.s.turn.lastEvent = time.Now()
}

// identify tells the waiter its message's id.
func (w *Waiter) identify(messageID string) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.known, w.messageID = true, messageID
	w.span.Message(messageID)
	out, taken := w.seen[messageID]
	w.begun = w.begun || taken
	if out != nil && !w.over() {
		w.s.turn.finish(w, *out)
	}
	w.seen = nil
	if w.settled && !w.over() && w.entry == 0 {
		w.s.turn.notTaken(w)
	}
}

// note keeps an outcome for whichever of the messages taken up so far is the waiter's.
func (w *Waiter) note(out Outcome) {
	for id, end := range w.seen {
		if end == nil {
			w.seen[id] = &out
		}
	}
}

// over reports whether the waiter has its outcome.
func (w *Waiter) over() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// Close ends the waiting.
func (w *Waiter) Close() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if !w.over() {
		w.span.Refuse()
	}
	w.s.turn.drop(w)
}

// busy reports whether a turn runs, or is about to: the CLI has accepted a message, and
// the event that says that it was taken up is still to come.
func (t *turn) busy() bool {
	return t.running || slices.ContainsFunc(t.waiters, func(w *Waiter) bool { return w.accepted && !w.doubt })
}

func (t *turn) drop(w *Waiter) {
	for i, o := range t.waiters {
		if o == w {
			t.waiters = append(t.waiters[:i:i], t.waiters[i+1:]...)
			return
		}
	}
}

// finish gives a waiter its outcome.
func (t *turn) finish(w *Waiter, out Outcome) {
	w.out = out
	w.span.EndTurn(out.Status.String())
	t.drop(w)
	if w.entry != 0 {
		w.s.prompts.over(w, out)
	}
	close(w.done)
}

// userMessage notes that a message was taken up.
func (t *turn) userMessage(rec *journal.Record) {
	if !t.running || t.failing { // what was queued behind a failure is a turn of its own
		t.message, t.aborted, t.told = nil, false, false
	}
	began := !t.running || t.failing
	t.running, t.failing, t.rested = true, false, false
	if began {
		t.begin()
	}
	var d struct{ MessageID string }
	event.Data(rec, &d)
	for _, w := range t.waiters {
		switch {
		case d.MessageID == "":
			// CLI 1.0.81 does not always say which message it is: it takes them up in the
			// order in which they came.
			if w.begun {
				continue
			}
			w.begun = true
			return
		case w.known:
			w.begun = w.begun || d.MessageID == w.messageID
		default:
			w.seen[d.MessageID] = nil
		}
	}
}

// follow takes the other events of a turn.
func (t *turn) follow(rec *journal.Record) {
	switch rec.Type {
	case "assistant.turn_start":
		began := !t.running
		t.running, t.rested = true, false
		if began {
			t.begin()
		}
	case "assistant.idle":
		t.rested = t.running
	case "assistant.message":
		t.message = rec
	case "tool.execution_start":
		t.tools++
	case "tool.execution_complete":
		t.tools = max(0, t.tools-1)
	case "abort":
		t.aborted = true
	case "session.error":
		t.failed(rec)
	}
}

// loggedError is the type of an error that a client wrote into the timeline.
const loggedError = "notification"

// failed ends the waiting with an error: an idle event does not always follow. It is the
// failure of what runs; the CLI goes on with what is queued behind it.
func (t *turn) failed(rec *journal.Record) {
	var d struct {
		ErrorType, Message string
		StatusCode         *int32
	}
	event.Data(rec, &d)
	if d.ErrorType == loggedError {
		return
	}
	t.failing = t.running
	why, text := turnReason(d.Message)
	te := &bridgev1.TurnError{
		ErrorType: d.ErrorType, Message: text, StatusCode: d.StatusCode, Reason: reason.Enum(why),
		Position: &bridgev1.Position{Epoch: rec.Pos.Epoch, Seq: rec.Pos.Seq},
	}
	out := Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_FAILED, Error: te, Message: t.message, End: rec.Pos}
	t.tell(out)
	for _, w := range t.snapshot() {
		switch {
		case !w.accepted || w.all || w.doubt:
		case w.begun || !t.running:
			t.finish(w, out)
		case !w.known:
			w.note(out)
		}
	}
}

// idle ends the turn, and says how it ended.
func (t *turn) idle(rec *journal.Record) bridgev1.TurnStatus {
	var d struct{ Aborted bool }
	event.Data(rec, &d)
	out := Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_COMPLETED, Message: t.message, End: rec.Pos}
	switch {
	case t.stalling:
		out.Status = bridgev1.TurnStatus_TURN_STATUS_STALLED
	case t.aborted || d.Aborted:
		out.Status = bridgev1.TurnStatus_TURN_STATUS_ABORTED
	}
	t.rest(out)
	return out.Status
}

// rest ends the turn: the agent has come to rest.
func (t *turn) rest(out Outcome) {
	t.tell(out)
	for _, w := range t.snapshot() {
		switch {
		case !w.accepted || w.doubt:
		// An abort also drops messages that were never taken up.
		case w.begun || out.Status == bridgev1.TurnStatus_TURN_STATUS_ABORTED || out.Status == bridgev1.TurnStatus_TURN_STATUS_STALLED:
			t.finish(w, out)
		case !w.known:
			w.note(out)
		}
	}
	t.reset()
}

// reset makes ready for the next turn.
func (t *turn) reset() {
	t.running, t.failing, t.aborted, t.told, t.tools = false, false, false, false, 0
	t.rested, t.stalling, t.continuing = false, false, false
	clear(t.calling)
}

// lost ends the turn because its runtime, or the session's use, has ended.
func (t *turn) lost(status bridgev1.TurnStatus, at journal.Position) *Outcome {
	out := Outcome{Status: status, Message: t.message, End: at}
	silent := status == bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST
	was := t.running || t.busy() && !silent
	t.running = was
	t.tell(out)
	for _, w := range t.snapshot() {
		if silent && w.inDoubt() {
			w.note(out)
			continue
		}
		t.finish(w, out)
	}
	t.reset()
	t.message = nil
	if !was {
		return nil
	}
	return &out
}

func (t *turn) snapshot() []*Waiter { return append([]*Waiter(nil), t.waiters...) }

// Done returns a channel that closes when the turn has ended, and what then gives its
// outcome.
func (w *Waiter) Done() (<-chan struct{}, func() Outcome) {
	return w.done, func() Outcome { return w.out }
}

// Wait waits for the turn's end, for as long as ctx lasts and, with idle above zero,
// while the session is not silent for that long. Time in which a tool or a callback is
// outstanding is not silence. The turn goes on when the waiting ends early.
func (w *Waiter) Wait(ctx context.Context, idle time.Duration) Outcome {
	var timer <-chan time.Time
	if idle > 0 {
		t := time.NewTicker(max(idle/4, time.Millisecond))
		defer t.Stop()
		timer = t.C
	}
	for {
		select {
		case <-w.done:
			return w.out
		case <-ctx.Done():
			return w.timedOut()
		case <-timer:
			if w.s.silent() >= idle {
				return w.timedOut()
			}
		}
	}
}

func (w *Waiter) timedOut() Outcome {
	if w.over() { // at the same moment
		return w.out
	}
	return Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_TIMED_OUT, End: w.s.journal.Last()}
}

// silent returns for how long nothing has happened although nothing is outstanding.
func (s *Session) silent() time.Duration {
	pending := s.pending.Len()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if pending > 0 || s.turn.tools > 0 {
		s.turn.waited = now
	}
	return min(now.Sub(s.turn.lastEvent), now.Sub(s.turn.waited))
}

// TurnRunning reports whether a turn runs.
func (s *Session) TurnRunning() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn.busy()
}
