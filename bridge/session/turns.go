package session

import (
	"cmp"
	"context"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Turns follows the turns of the session as they happen: it carries out what the machine of package turn decides, and has
// the waiters, the spans and the notes of turns.
//
// The end of a turn for which the CLI sent no event is posted to the journal: a note with a position, for every reader
// whose position is before it.
//
// The session's lock guards a Turns. A method says when its caller holds the lock; all other
// methods take it.
type Turns struct {
	s        *Session
	observer *observe.Observer
	machine  *turn.Machine
	// beganAt is when the turn that runs began; own is its span if no message of this process
	// began it.
	beganAt time.Time
	own     *observe.Span
	trace   trace
	// shown: watchers of sessions know that the session works.
	shown bool
	// known is the last turn's end that readers have known. awaited: a goroutine waits until they know the latest.
	known   journal.Position
	awaited bool
}

// carryOut does what the machine asks for, and tells watchers of sessions. The caller holds the lock.
func (t *Turns) carryOut(effects []turn.Effect) {
	changed := false
	for i := range effects {
		switch e := &effects[i]; e.Kind {
		case turn.Begun:
			t.begin(e.Span)
			changed = true
		case turn.Ended:
			t.end(e.Outcome)
			changed = true
		case turn.Finished:
			e.Waiter.Span.EndTurn(e.Outcome.Status.String())
			if e.Waiter.Entry == 0 || !t.s.prompts.ended(e.Waiter, e.Outcome) {
				e.Waiter.Wake()
			}
		case turn.Rested:
			t.s.prompts.rested()
			if e.Outcome.Status == bridgev1.TurnStatus_TURN_STATUS_ABORTED {
				t.s.callbacks.withdrawAborted()
			}
		}
	}
	t.show(changed)
}

// show tells watchers of sessions that a turn has begun or ended, or whether the session works if they know otherwise: messages
// that the CLI has accepted may end without a turn. The caller holds the lock.
func (t *Turns) show(changed bool) {
	if busy := t.machine.Busy(); changed || busy != t.shown {
		t.shown = busy
		t.s.host.Changed(bridgev1.SessionChange_SESSION_CHANGE_UPDATED)
	}
}

// begin notes that a turn has begun. A turn without a message's span gets its own.
func (t *Turns) begin(of *observe.Span) {
	t.s.prompts.turnBegun()
	t.beganAt = time.Now()
	if of == nil && t.own == nil {
		t.own = t.observer.Turn(context.Background(), t.s.id, t.s.tenant, observe.Remote{})
	}
	t.trace.begin(cmp.Or(of, t.own))
}

// end announces the end of a turn. Readers that return later must not miss one that no event shows.
// The caller holds the lock.
func (t *Turns) end(out turn.Outcome) {
	t.measure(out.Status)
	t.knownEnd()
	marks := &t.s.ingester.Known
	marks.TurnEnd = out.End
	marks.Interruption.Last = out.Status == bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST
	t.s.markDirty()
	if rt := t.s.loader.runtime; rt != nil && out.Status == bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
		rt.TurnCompleted()
	}
	switch {
	case out.Status == bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST, out.Status == bridgev1.TurnStatus_TURN_STATUS_STALLED:
		marks.InterruptedAt = t.s.journal.Post(TurnOver{Outcome: out}, journal.Position{})
	case out.Silent:
		t.s.journal.Post(TurnOver{Outcome: out}, journal.Position{})
	default:
		t.s.journal.Note(TurnOver{Outcome: out})
	}
}

// measure reports a turn's end to the observer.
func (t *Turns) measure(status bridgev1.TurnStatus) {
	took := time.Duration(0)
	if !t.beganAt.IsZero() {
		took = time.Since(t.beganAt)
	}
	t.observer.TurnOver(t.trace.turn, t.s.tenant, status.String(), took)
	t.trace.end(status)
	t.own.EndTurn(status.String())
	t.beganAt, t.own = time.Time{}, nil
}

// lose ends the turn because its runtime, or the session's use, has ended. It returns the outcome
// of the turn that ran; nil if there was none. The caller holds the lock.
func (t *Turns) lose(status bridgev1.TurnStatus) *turn.Outcome {
	out, effects := t.machine.Lose(status, t.s.journal.Last())
	t.carryOut(effects)
	t.trace.cut()
	return out
}

// losePast ends the turns that a load has found in the history. With tell, readers do not know of the end of the last one,
// which a runtime has begun or gone on with. Whether the agent is told to continue it was decided when it was interrupted
// first. The caller holds the lock.
func (t *Turns) losePast(tell bool) {
	if !tell {
		t.carryOut(t.machine.LosePast(t.s.journal.Last()))
		return
	}
	interrupted := t.s.ingester.Known.Interruption.Last
	t.lose(bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST)
	t.s.ingester.Known.Interruption.Last = interrupted
}

// goOn notes whether the CLI goes on with an earlier runtime's turn. The caller holds the lock.
func (t *Turns) goOn(goesOn bool) {
	t.machine.Continue(goesOn)
	t.show(false)
}

// Running reports whether a turn runs.
func (t *Turns) Running() bool {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.machine.Busy()
}

// OutcomeOf returns how the turn of the message at a position ended, as far as the journal shows.
func (t *Turns) OutcomeOf(ctx context.Context, at journal.Position) turn.Outcome {
	before := journal.Position{Epoch: at.Epoch, Seq: at.Seq - 1}
	var told TurnOver // the end that no event shows
	out, ended := turn.Replay(func(yield func(*journal.Record) bool) {
		for rec := range event.Records(ctx, t.s.journal, before) {
			if over, is := rec.Note.(TurnOver); is && over.Outcome.Silent {
				told = over
				return // an abort may come behind it
			}
			if rec.Note == nil && !yield(rec) {
				return
			}
		}
	}, turnReason)
	switch {
	case ended:
	case told.Outcome.Silent:
		out.Status, out.End = told.Outcome.Status, told.Outcome.End
	default:
		out.End = t.s.journal.Last()
	}
	return out
}

// span is the span of the turn: of its first message, as far as that is known, or its own. The
// caller holds the lock.
func (t *Turns) span() *observe.Span { return cmp.Or(t.machine.Span(), t.own) }

// startSpan begins the span of a message and puts its context into the message's parameters, unless
// the caller has named a trace that is not the bridge's.
func (t *Turns) startSpan(ctx context.Context, params *jsonobj.Object) *observe.Span {
	named := observe.Remote{Traceparent: params.String("traceparent"), Tracestate: params.String("tracestate")}
	span := t.observer.Turn(ctx, t.s.id, t.s.tenant, named)
	if named.Traceparent == "" || span.Own() {
		putTrace(params, span.Remote())
	}
	return span
}

// putTrace puts a trace context into parameters.
func putTrace(params *jsonobj.Object, r observe.Remote) {
	if r.Traceparent == "" {
		return
	}
	params.SetString("traceparent", r.Traceparent)
	params.Set("tracestate", nil)
	if r.Tracestate != "" {
		params.SetString("tracestate", r.Tracestate)
	}
}

// knownEnd returns the end of the last turn for what is saved. Readers of a log across a network know an end when the log has what
// comes before it: if the process ends earlier, the next one tells them. The session is saved again then. The caller holds the lock.
func (t *Turns) knownEnd() journal.Position {
	end, shown := t.s.ingester.Known.TurnEnd, t.s.journal.Shown()
	switch {
	case !t.s.journal.Remote() || end.Epoch != shown.Epoch || end.Seq <= shown.Seq:
		t.known = end
	case !t.awaited:
		t.awaited = t.s.host.Go(func(ctx context.Context) {
			err := t.s.journal.Await(ctx, end)
			t.s.update(func() {
				if t.awaited = false; err == nil {
					t.s.markDirty()
				}
			})
		})
	}
	return t.known
}
