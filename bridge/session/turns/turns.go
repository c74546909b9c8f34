// Package turns follows the turns of one session as they happen: it carries out what the machine of
// package turn decides, and has the waiters, the spans and the notes of turns.
//
// The end of a turn for which the CLI sent no event is posted to the journal: a note with a position, for every reader
// whose position is before it.
//
// The session's lock guards a Turns. A method says when its caller holds the lock; all other
// methods take it. The package has no goroutine.
package turns

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/callbacks"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/history"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/prompts"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Tx is the session while its lock is held.
type Tx interface {
	prompts.Tx
	// Marks are how far the conversation is known.
	Marks() *history.Marks
}

// Config is what a Turns needs of its session.
type Config struct {
	// Session and Tenant name the session in spans.
	Session, Tenant string
	// Lock is the session's lock; Tx is the session, used with the lock held.
	Lock      sync.Locker
	Tx        Tx
	Journal   *journal.Journal
	Callbacks *callbacks.Desk
	Prompts   *prompts.Queue
	Observer  *observe.Observer
	// Bounds limit the time in which nothing happens; Reason explains errors that end turns.
	Bounds turn.Bounds
	Reason turn.Classifier
	// Completed is called, with the lock held, when a turn has completed.
	Completed func()
	// Classify turns the error of an ended context into the API's.
	Classify func(err error, method string) error
}

// Turns is the turns of a session. New makes one.
type Turns struct {
	cfg     Config
	machine *turn.Machine
	// beganAt is when the turn that runs began; own is its span if no message of this process
	// began it.
	beganAt time.Time
	own     *observe.Span
}

// New returns the turns of a session in which none runs.
func New(cfg Config) *Turns {
	return &Turns{cfg: cfg, machine: turn.New(cfg.Bounds, cfg.Reason)}
}

// Machine returns the state of the turn. The caller holds the lock to use it.
func (t *Turns) Machine() *turn.Machine { return t.machine }

// CarryOut does what the machine asks for. The caller holds the lock.
func (t *Turns) CarryOut(effects []turn.Effect) {
	for i := range effects {
		switch e := &effects[i]; e.Kind {
		case turn.Begun:
			t.begin(e.Span)
		case turn.Ended:
			t.End(e.Outcome)
		case turn.Finished:
			e.Waiter.Span.EndTurn(e.Outcome.Status.String())
			if e.Waiter.Entry != 0 {
				t.cfg.Prompts.Ended(t.cfg.Tx, e.Waiter.Entry, e.Outcome)
			}
			e.Waiter.Release()
		case turn.Rested:
			t.cfg.Prompts.Rested(t.cfg.Tx)
			if e.Outcome.Status == bridgev1.TurnStatus_TURN_STATUS_ABORTED {
				t.cfg.Callbacks.WithdrawAborted()
			}
		}
	}
}

// begin notes that a turn has begun. A turn without a message's span gets its own.
func (t *Turns) begin(of *observe.Span) {
	t.cfg.Prompts.TurnBegun(t.cfg.Tx)
	t.beganAt = time.Now()
	if of == nil && t.own == nil {
		t.own = t.cfg.Observer.Turn(context.Background(), t.cfg.Session, t.cfg.Tenant, observe.Remote{})
	}
}

// End announces the end of a turn. Readers that return later must not miss one that no event shows.
// The caller holds the lock.
func (t *Turns) End(out turn.Outcome) {
	t.measure(out.Status.String())
	marks := t.cfg.Tx.Marks()
	marks.TurnEnd = out.End
	marks.Interruption.Last = out.Status == bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST
	t.cfg.Tx.MarkDirty()
	switch out.Status {
	case bridgev1.TurnStatus_TURN_STATUS_COMPLETED:
		t.cfg.Completed()
		t.cfg.Journal.Note(prompts.TurnOver{Outcome: out})
	case bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST, bridgev1.TurnStatus_TURN_STATUS_STALLED:
		marks.InterruptedAt = t.cfg.Journal.Post(prompts.TurnOver{Outcome: out}, journal.Position{})
	default:
		t.cfg.Journal.Note(prompts.TurnOver{Outcome: out})
	}
}

// measure reports a turn's end to the observer.
func (t *Turns) measure(status string) {
	took := time.Duration(0)
	if !t.beganAt.IsZero() {
		took = time.Since(t.beganAt)
	}
	t.cfg.Observer.TurnOver(status, took)
	t.own.EndTurn(status)
	t.beganAt, t.own = time.Time{}, nil
}

// Lose ends the turn because its runtime, or the session's use, has ended. It returns the outcome
// of the turn that ran; nil if there was none. The caller holds the lock.
func (t *Turns) Lose(status bridgev1.TurnStatus) *turn.Outcome {
	out, effects := t.machine.Lose(status, t.cfg.Journal.Last())
	t.CarryOut(effects)
	return out
}

// LosePast ends turns that a load found in the history. The caller holds the lock.
func (t *Turns) LosePast() { t.CarryOut(t.machine.LosePast(t.cfg.Journal.Last())) }

// Confirm resolves unconfirmed messages once the history was applied. The caller holds the lock.
func (t *Turns) Confirm() { t.CarryOut(t.machine.Confirm(t.cfg.Journal.Last())) }

// Running reports whether a turn runs.
func (t *Turns) Running() bool {
	t.cfg.Lock.Lock()
	defer t.cfg.Lock.Unlock()
	return t.machine.Busy()
}

// OutcomeOf returns how the turn of the message at a position ended, as far as the journal shows.
func (t *Turns) OutcomeOf(ctx context.Context, at journal.Position) turn.Outcome {
	r := turn.NewReplay(t.cfg.Reason)
	event.Scan(ctx, t.cfg.Journal, journal.Position{Epoch: at.Epoch, Seq: at.Seq - 1}, r.Apply)
	return r.Outcome(t.cfg.Journal.Last())
}

// Span is the span of the turn: of its first message, as far as that is known, or its own. The
// caller holds the lock.
func (t *Turns) Span() *observe.Span { return cmp.Or(t.machine.Span(), t.own) }

// StartSpan begins the span of a message and puts its context into the message's parameters, unless
// the caller has named a trace that is not the bridge's.
func (t *Turns) StartSpan(ctx context.Context, params *jsonobj.Object) *observe.Span {
	named := observe.Remote{Traceparent: params.String("traceparent"), Tracestate: params.String("tracestate")}
	span := t.cfg.Observer.Turn(ctx, t.cfg.Session, t.cfg.Tenant, named)
	if named.Traceparent == "" || span.Own() {
		PutTrace(params, span.Remote())
	}
	return span
}

// PutTrace puts a trace context into parameters.
func PutTrace(params *jsonobj.Object, r observe.Remote) {
	if r.Traceparent == "" {
		return
	}
	params.SetString("traceparent", r.Traceparent)
	params.Set("tracestate", nil)
	if r.Tracestate != "" {
		params.SetString("tracestate", r.Tracestate)
	}
}
