package session

import (
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/history"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/info"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/reorder"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/usage"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// LeftOutOfOrder is what the log says when events of a burst were handed on before others that
// the CLI emitted earlier. The next LeftEvents events may be out of order, too: so many may have
// to come before a burst is recognised again.
const (
	LeftOutOfOrder = "burst left out of order"
	LeftEvents     = 2 * reorder.BurstEvents
)

// maxHeld bounds the events that are held back while the history is read. At the bound they are
// taken, and later history only adds what the journal lacks.
const maxHeld = 10_000

// Ingester takes the CLI's events of the session, in the order in which the CLI emitted them: the reorder buffer with its
// timer, what is held back while the CLI's history is read, the journal, and what follows from an event: turns,
// callbacks, what the session shows of itself.
//
// The session's lock guards an Ingester with its exported fields: all methods are called with it held. Its timer runs while
// the buffer holds events back; End stops it.
type Ingester struct {
	// Info is what the session shows of itself, Known how far its conversation is known.
	Info  info.Info
	Known history.Known
	// Usage is what the session has used of models.
	Usage usage.Usage
	// Internal marks events as the bridge's own doing: it loads or unloads the session.
	Internal bool

	s      *Session
	buffer *reorder.Buffer
	timer  *time.Timer // runs while armed: the buffer holds events back
	armed  bool
	// held are the events that arrived while the history is being read.
	held    []*journal.Record
	reading bool
	// begun: a turn has begun in a runtime that ended before it had loaded the session. The history may have it.
	begun bool
	// arrivedAt is when the event that is being taken arrived; zero otherwise.
	arrivedAt time.Time
}

// newIngester returns an Ingester for a session that begins at a time.
func newIngester(s *Session, at time.Time) *Ingester {
	i := &Ingester{s: s, Info: info.Info{Start: at, Modified: at}}
	i.buffer = reorder.New(i.apply, func(id journal.ID) bool { return s.journal.Seen(id) })
	return i
}

// take takes an event that arrived at a time, in the order in which the CLI sent it. It never
// blocks, and keeps the record.
func (i *Ingester) take(rec *journal.Record, at time.Time) {
	// A load goes on behind the first turns of the session, which callers may abort.
	rec.Bridge = i.Internal && (rec.Type != "abort" || i.s.prompts.aborts == 0)
	if i.reading {
		i.held = append(i.held, rec)
		if len(i.held) >= maxHeld {
			i.release()
		}
		return
	}
	i.arrivedAt = at
	i.inOrder(rec, at)
	i.arrivedAt = time.Time{}
}

// hold holds events back until release or discard: the CLI's history is read meanwhile.
func (i *Ingester) hold() { i.reading = true }

// release takes the events that were held back.
func (i *Ingester) release() {
	held := i.held
	i.discard()
	now := time.Now()
	for _, rec := range held {
		i.inOrder(rec, now) // a burst may go on while the session is loaded
	}
}

// lose drops the events that were held back: their runtime has ended before it had loaded the session.
func (i *Ingester) lose() {
	i.begun = i.begun || slices.ContainsFunc(i.held, func(rec *journal.Record) bool {
		return rec.Agent == "" && (rec.Type == "user.message" || rec.Type == "assistant.turn_start")
	})
	i.discard()
}

// discard drops the events that were held back.
func (i *Ingester) discard() { i.held, i.reading = nil, false }

// end hands on all that the buffer holds back, forgets the burst and stops the timer: no more
// events come.
func (i *Ingester) end() {
	i.buffer.Flush(time.Now())
	i.buffer.Reset()
	i.arm()
}

// inOrder applies an event, or keeps it until its turn has come.
func (i *Ingester) inOrder(rec *journal.Record, at time.Time) {
	if reason := i.buffer.Push(rec, at); reason != reorder.None {
		after := i.s.journal.Last()
		i.buffer.Flush(at)
		i.leftOutOfOrder(reason, after)
	}
	i.arm()
}

// arm starts or stops the timer.
func (i *Ingester) arm() {
	held := i.buffer.Held() > 0
	switch {
	case held == i.armed:
		return
	case !held:
		i.timer.Stop()
	case i.timer == nil:
		i.timer = time.AfterFunc(reorder.Patience, i.overdue)
	default:
		i.timer.Reset(reorder.Patience)
	}
	i.armed = held
}

// overdue hands on events that have been held back for too long.
func (i *Ingester) overdue() {
	i.s.mu.Lock()
	defer i.s.mu.Unlock()
	after := i.s.journal.Last()
	left, overdue := i.buffer.Overdue(time.Now())
	if overdue {
		i.leftOutOfOrder(reorder.Pause, after)
	}
	if left > 0 {
		i.timer.Reset(left)
	}
	i.arm()
}

// leftOutOfOrder logs that events after a position were handed on though some of the burst may be
// missing before them: readers may get those late.
func (i *Ingester) leftOutOfOrder(reason reorder.Reason, after journal.Position) {
	through := i.s.journal.Last()
	i.s.host.Logger().Warn(LeftOutOfOrder, "session_id", i.s.id, "reason", string(reason),
		"epoch", through.Epoch, "after_seq", after.Seq, "through_seq", through.Seq)
}

// apply puts an event into the journal and follows what it says. It reports whether the event is
// new.
func (i *Ingester) apply(rec *journal.Record) bool {
	if rec.Type == "user.message" && !i.s.journal.Seen(rec.ID) {
		i.carryOut(i.s.turns.machine.Precede(rec, i.s.journal.Appended()), time.Now())
	}
	if !i.Append(rec) {
		return false
	}
	i.step(rec)
	if rec.Plain {
		return true
	}
	if k := callback.ForEvent(rec.Type); k != nil {
		i.s.callbacks.requested(k, rec)
	} else if callback.Ends(rec.Type) {
		i.s.callbacks.over(event.Text(rec, "requestId"))
		i.s.settings.approve(config.ApprovalsIn(rec))
	}
	return true
}

// Append puts an event into the journal and follows what it says, callbacks apart. It reports
// whether the event is new.
func (i *Ingester) Append(rec *journal.Record) bool {
	if !i.s.journal.Append(rec) {
		return false
	}
	at := i.now()
	i.carryOut(i.s.turns.machine.Apply(rec, at), at)
	i.follow(rec, at)
	return true
}

// step counts and reports a step of a turn: a model call or a tool.
func (i *Ingester) step(rec *journal.Record) {
	switch rec.Type {
	case "assistant.usage":
		call, at := usage.Read(rec), i.now()
		i.Usage.Add(&call, at)
		i.s.markDirty()
		i.s.turns.trace.called(rec.Agent, &call, at)
	case "model.call_failure":
		call := usage.ReadFailure(rec)
		i.s.turns.trace.called(rec.Agent, &call, i.now())
	case "tool.execution_start":
		i.s.turns.trace.toolBegun(rec, i.now())
	case "tool.execution_complete":
		i.s.turns.trace.toolEnded(rec, time.Now()) // after its callbacks, whose ends are noted when they are handled
	}
}

// now returns when the event that is being taken arrived, or the time if it was held back.
func (i *Ingester) now() time.Time {
	if i.arrivedAt.IsZero() {
		return time.Now()
	}
	return i.arrivedAt
}

// carryOut has the session do what the machine of turns asks for, and counts the turns that have ended.
func (i *Ingester) carryOut(effects []turn.Effect, at time.Time) {
	if effects == nil {
		return
	}
	i.s.turns.carryOut(effects)
	for _, e := range effects {
		if e.Kind == turn.Ended {
			i.Usage.EndTurn(at, i.Info.Model)
		}
	}
}

// follow brings what is known of the session in step with an event that arrived at a time.
func (i *Ingester) follow(rec *journal.Record, at time.Time) {
	if rec.Agent != "" {
		return
	}
	i.Known.Apply(rec)
	switch i.Info.Apply(rec, at) {
	case info.Announce:
		i.s.markDirty()
		i.s.host.Changed(bridgev1.SessionChange_SESSION_CHANGE_UPDATED)
	case info.Save:
		i.s.markDirty()
	}
	if rec.Type == "session.idle" {
		i.s.journal.TurnEnded()
	}
}
