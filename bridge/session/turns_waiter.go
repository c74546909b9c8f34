package session

import (
	"context"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// failedTimeout bounds waiting for the end of a turn after its error; that takes some
// milliseconds, and in rare cases it never comes.
const failedTimeout = 5 * time.Second

// Waiter waits for the end of the turn that a message begins. A turn that takes several messages
// ends once, for all of them. Its methods may be called from any goroutine.
type Waiter struct {
	t     *Turns
	state *turn.Waiter // guarded by the session's lock, but for its end
}

// EndedWaiter returns a waiter for a turn that has ended. It need not be closed.
func EndedWaiter(out turn.Outcome) *Waiter {
	return &Waiter{state: turn.EndedWaiter(out)}
}

// expect registers a waiter for a message with a span, which may be nil. The caller sends the
// message afterwards.
func (t *Turns) expect(span *observe.Span) *Waiter {
	w := t.waiter(turn.NewWaiter(0))
	w.state.Span = span
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	t.machine.Expect(w.state)
	return w
}

// waiter returns a waiter by its state.
func (t *Turns) waiter(state *turn.Waiter) *Waiter { return &Waiter{t, state} }

// continuing returns a waiter for the running turn, if the CLI continues one of an earlier process by itself; nil if not.
func (t *Turns) continuing() *Waiter {
	w := t.expect(nil)
	t.s.mu.Lock()
	continuing := t.machine.Continuing()
	if continuing {
		t.machine.AwaitTurn(w.state)
	}
	t.s.mu.Unlock()
	if !continuing {
		w.Close()
		return nil
	}
	return w
}

// accept notes that the CLI has replied. It runs when the reply is read, in order with events.
func (w *Waiter) accept() {
	w.t.s.mu.Lock()
	defer w.t.s.mu.Unlock()
	w.t.machine.Accept(w.state, time.Now())
}

// identify notes the message's id, or those of several.
func (w *Waiter) identify(ids ...string) {
	w.t.s.mu.Lock()
	defer w.t.s.mu.Unlock()
	w.state.Span.Message(lastOf(ids))
	w.t.carryOut(w.t.machine.Identify(w.state, ids...))
}

// Close ends the waiting.
func (w *Waiter) Close() {
	w.t.s.mu.Lock()
	defer w.t.s.mu.Unlock()
	if w.t.machine.Drop(w.state) {
		w.state.Span.Refuse()
	}
}

// Done returns a channel that closes when the turn has ended, and a function that then returns its
// outcome.
func (w *Waiter) Done() (<-chan struct{}, func() turn.Outcome) {
	return w.state.Done(), w.state.Outcome
}

// Wait waits for the turn's end until ctx ends or, with idle above zero, the session is silent for
// that long. Time in which a tool or a callback is outstanding is not silence. The turn goes on
// when the waiting ends early.
func (w *Waiter) Wait(ctx context.Context, idle time.Duration) turn.Outcome {
	var timer <-chan time.Time
	if idle > 0 {
		t := time.NewTicker(max(idle/4, time.Millisecond))
		defer t.Stop()
		timer = t.C
	}
	for {
		select {
		case <-w.state.Done():
			return w.state.Outcome()
		case <-ctx.Done():
			return w.timedOut()
		case <-timer:
			if w.state.Over() || w.t.silent() >= idle {
				return w.timedOut()
			}
		}
	}
}

func (w *Waiter) timedOut() turn.Outcome {
	if w.state.Over() { // at the same moment
		return w.state.Outcome()
	}
	return turn.Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_TIMED_OUT, End: w.t.s.journal.Last()}
}

// silent returns for how long nothing has happened although nothing is outstanding.
func (t *Turns) silent() time.Duration {
	pending := t.s.callbacks.Registry().Len() > 0
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return t.machine.Silent(time.Now(), pending)
}

// AwaitRest waits for the end of the running turn, if one runs, and of what is queued.
func (t *Turns) AwaitRest(ctx context.Context) error {
	w := t.expect(nil)
	defer w.Close()
	t.s.mu.Lock()
	running := t.machine.Busy()
	t.machine.AwaitRest(w.state)
	t.s.mu.Unlock()
	if !running {
		return nil
	}
	select {
	case <-w.state.Done():
		return nil
	case <-ctx.Done():
		return Classify(ctx.Err(), "")
	}
}

// awaitFailed waits a moment for the end of a turn that has failed: callers learn of the failure
// from the error, before the CLI is done with the turn, and may mend its cause at once.
func (t *Turns) awaitFailed(ctx context.Context) error {
	t.s.mu.Lock()
	failing := t.machine.Failing()
	t.s.mu.Unlock()
	if !failing {
		return nil
	}
	moment, cancel := context.WithTimeout(ctx, failedTimeout)
	defer cancel()
	if err := t.AwaitRest(moment); err != nil && ctx.Err() != nil {
		return err
	}
	return nil
}
