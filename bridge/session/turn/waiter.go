package turn

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
)

// Waiter waits for the end of the turn that a message begins or steers. A turn that takes several
// messages ends once, for all of them. Make one with NewWaiter or EndedWaiter; only Done and Outcome may be called
// without the machine's lock.
type Waiter struct {
	// Span is that of the message; nil if it waits for a turn of others. The session sets it
	// before Expect.
	Span *observe.Span
	// Entry is its prompt's in the outbox; 0 if it waits for a turn of others.
	Entry uint64
	// Prompt is the text of its message, as JSON; nil if it is not known, or if there are several.
	Prompt json.RawMessage
	// Immediate reports that the message steers the running turn.
	Immediate bool

	// accepted: the CLI has replied, so that the turn's end can come. The reply's id is
	// known (messageID) only a little later.
	accepted, known bool
	messageID       string
	// earlier are the ids of the messages of the same call that the agent takes up before that one.
	earlier []string
	// begun: the message was taken up, at takenAt.
	begun   bool
	takenAt journal.Position
	// unconfirmed: the runtime ended before the message was seen to be taken up.
	unconfirmed bool
	// removed: the CLI has confirmed an abort that removed the message; the event that says so may
	// still come.
	removed bool
	// aborted: the CLI has begun an abort since it accepted the message. doubtful: it has begun one before its reply
	// to the message was read.
	aborted, doubtful bool
	// left is the outcome unless the message has been taken up, which its id will tell: an abort has removed it, if the CLI took
	// up one that was sent later.
	left *Outcome
	// untilRest makes the waiter wait until the agent is idle, also after a failure.
	untilRest bool
	// seen are the messages taken up before the id was known.
	seen     []seen
	finished bool
	out      Outcome
	done     chan struct{}
	then     []func(Outcome)
}

// seen is a message that was taken up, with the outcome of its turn if that has ended too.
type seen struct {
	id   string
	at   journal.Position
	over bool
	out  Outcome
}

// NewWaiter returns a waiter for the turn of a prompt with an entry in the outbox; 0 if it waits for a turn of others.
func NewWaiter(entry uint64) *Waiter { return &Waiter{Entry: entry, done: make(chan struct{})} }

// EndedWaiter returns a waiter for a turn that has ended.
func EndedWaiter(out Outcome) *Waiter {
	w := NewWaiter(0)
	w.Finish(out)
	return w
}

// Done returns a channel that closes when the waiter has its outcome.
func (w *Waiter) Done() <-chan struct{} { return w.done }

// Over reports whether Done is closed.
func (w *Waiter) Over() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// Outcome is how the turn ended, once Done is closed.
func (w *Waiter) Outcome() Outcome { return w.out }

// Wake closes Done and calls what Then has added. It carries out Finished.
func (w *Waiter) Wake() {
	close(w.done)
	for _, f := range w.then {
		f(w.out)
	}
}

// Then has f called with the outcome, at once if there is one. f is called with the machine's lock, and must not wait.
func (w *Waiter) Then(f func(Outcome)) {
	if w.Over() {
		f(w.out)
		return
	}
	w.then = append(w.then, f)
}

// Finish gives an outcome to a waiter that no machine has.
func (w *Waiter) Finish(out Outcome) {
	w.finished, w.out = true, out
	close(w.done)
}

// Begun reports whether the message was taken up.
func (w *Waiter) Begun() bool { return w.begun }

// Removed reports whether Remove was called.
func (w *Waiter) Removed() bool { return w.removed }

// Unconfirmed reports whether it is not known whether the message was taken up.
func (w *Waiter) Unconfirmed() bool { return w.unconfirmed }

// note keeps an outcome for whichever of the messages taken up so far is the waiter's.
func (w *Waiter) note(out Outcome) {
	for i := range w.seen {
		if t := &w.seen[i]; !t.over {
			t.over, t.out = true, out
		}
	}
}

// take notes that the waiter's message was taken up at a position.
func (w *Waiter) take(at journal.Position) {
	if !w.begun {
		w.begun, w.takenAt = true, at
	}
}

// mayHaveBegun reports whether the turn that runs may be that of the waiter's message: the CLI may tell that it has taken the
// message up before it replies.
func (w *Waiter) mayHaveBegun() bool {
	return w.begun || slices.ContainsFunc(w.seen, func(t seen) bool { return !t.over })
}

// own is the outcome of a turn for the waiter's message: what the agent said before it took the message up is no answer
// to it.
func (w *Waiter) own(out Outcome) Outcome {
	if out.Message != nil && !(w.begun && w.takenAt.Before(out.Message.Pos)) {
		out.Message = nil
	}
	return out
}

// doubt makes a waiter unconfirmed if its prompt was given to the CLI and not seen since, and reports whether it is. The outbox
// has the prompt, and tells what has become of it.
func (w *Waiter) doubt() bool {
	w.unconfirmed = w.unconfirmed || w.Entry != 0 && !w.begun
	return w.unconfirmed && !w.begun
}

// Remove notes that the CLI has confirmed an abort that removed the waiter's message. No history shows that if the
// runtime ends before its event does.
func (m *Machine) Remove(w *Waiter) { w.removed = true }

// Expect adds a waiter for a message that is about to be sent.
func (m *Machine) Expect(w *Waiter) { m.waiters = append(m.waiters, w) }

// AwaitTurn makes a waiter wait for the end of the turn that runs.
func (m *Machine) AwaitTurn(w *Waiter) { w.accepted, w.begun, w.known = true, true, true }

// AwaitRest makes a waiter wait for the end of the turn that runs and of what is queued.
func (m *Machine) AwaitRest(w *Waiter) { w.accepted, w.begun, w.untilRest = true, true, true }

// Accept notes that the CLI has replied to the waiter's message, in order with events.
func (m *Machine) Accept(w *Waiter, now time.Time) {
	w.accepted = true
	m.lastEvent = now
}

// Identify notes the id of the waiter's message, or those of several, which one turn takes.
func (m *Machine) Identify(w *Waiter, ids ...string) []Effect {
	w.name(ids)
	if i := slices.IndexFunc(w.seen, func(t seen) bool { return t.id == w.messageID }); i >= 0 {
		t := w.seen[i]
		w.take(t.at)
		m.leaveBehind(w, journal.Position{Epoch: t.at.Epoch, Seq: t.at.Seq - 1})
		if t.over && !w.finished {
			m.finish(w, w.own(t.out))
		}
	}
	w.seen = nil
	if w.left != nil && !w.begun && !w.finished {
		m.finish(w, *w.left)
	}
	return m.take()
}

// name notes the ids of the messages that the waiter's call has sent. The agent has taken them up when it has the last one.
func (w *Waiter) name(ids []string) {
	w.known, w.messageID, w.earlier = true, "", nil
	if n := len(ids); n > 0 {
		w.messageID, w.earlier = ids[n-1], ids[:n-1]
	}
}

// Drop ends the waiting without an outcome, and reports whether there was none. A loop over the waiters is not disturbed.
func (m *Machine) Drop(w *Waiter) (unfinished bool) {
	m.waiters = slices.DeleteFunc(slices.Clone(m.waiters), func(o *Waiter) bool { return o == w })
	return !w.finished
}

// Finish gives a waiter its outcome.
func (m *Machine) Finish(w *Waiter, out Outcome) []Effect {
	m.finish(w, out)
	return m.take()
}

// Again makes a waiter ready for another delivery of its prompt.
func (m *Machine) Again(w *Waiter) {
	w.accepted, w.known, w.begun, w.unconfirmed, w.messageID, w.earlier = false, false, false, false, "", nil
	w.aborted, w.doubtful, w.left = false, false, nil
	w.takenAt, w.seen = journal.Position{}, nil
}

// MarkUnconfirmed makes a waiter one whose runtime was lost, unless its message was accepted.
func (m *Machine) MarkUnconfirmed(w *Waiter) {
	if !w.accepted {
		w.accepted, w.unconfirmed = true, true
	}
}

// Recover adds a waiter for a message, or several, that an earlier process sent.
func (m *Machine) Recover(w *Waiter, ids ...string) {
	w.accepted, w.unconfirmed = true, true
	w.name(ids)
	m.waiters = append(m.waiters, w)
}
