package session

import (
	"context"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Waiter waits for the end of the turn that a message begins. A turn that takes several
// messages ends once, for all of them. Its methods may be called from any goroutine.
type Waiter struct {
	s     *Session
	state *turn.Waiter // guarded by the session's mu, but for its end
}

// EndedTurn returns a waiter for a turn that has ended.
func EndedTurn(out turn.Outcome) *Waiter {
	w := &turn.Waiter{}
	w.InitEnded(out)
	return &Waiter{state: w}
}

// carryOut does what the turn's machine asks for. The caller holds mu.
func (s *Session) carryOut(effects []turn.Effect) {
	for i := range effects {
		switch e := &effects[i]; e.Kind {
		case turn.Begun:
			s.turnBegun(e.Span)
		case turn.Ended:
			s.turnOver(e.Outcome)
		case turn.Finished:
			e.Waiter.Span.EndTurn(e.Outcome.Status.String())
			if e.Waiter.Entry != 0 {
				s.prompts.Ended(locked{s}, e.Waiter.Entry, e.Outcome)
			}
			e.Waiter.Release()
		case turn.Rested:
			if e.Outcome.Status == bridgev1.TurnStatus_TURN_STATUS_ABORTED {
				s.callbacks.WithdrawAborted()
			}
		}
	}
}

// unregisteredWaiter returns a waiter that the turn's machine does not have.
func (s *Session) unregisteredWaiter() *Waiter {
	both := &struct { // one allocation
		w     Waiter
		state turn.Waiter
	}{}
	both.w = Waiter{s, &both.state}
	both.state.Init()
	return &both.w
}

// newWaiter registers a waiter for a message with a span, which may be nil. It must be made
// before the message is sent.
func (s *Session) newWaiter(span *observe.Span) *Waiter {
	w := s.unregisteredWaiter()
	w.state.Span = span
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn.Expect(w.state)
	return w
}

// accept tells the waiter that the CLI has replied. It runs when the reply is read, in
// order with events.
func (w *Waiter) accept() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.turn.Accept(w.state, time.Now())
}

// identify tells the waiter its message's id.
func (w *Waiter) identify(messageID string) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.state.Span.Message(messageID)
	w.s.carryOut(w.s.turn.Identify(w.state, messageID))
}

// Close ends the waiting.
func (w *Waiter) Close() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.s.turn.Drop(w.state) {
		w.state.Span.Refuse()
	}
}

// Done returns a channel that closes when the turn has ended, and a function that then gives
// its outcome.
func (w *Waiter) Done() (<-chan struct{}, func() turn.Outcome) {
	return w.state.Done(), w.state.Outcome
}

// Wait waits for the turn's end, for as long as ctx lasts and, with idle above zero,
// while the session is not silent for that long. Time in which a tool or a callback is
// outstanding is not silence. The turn goes on when the waiting ends early.
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
			if w.s.silent() >= idle {
				return w.timedOut()
			}
		}
	}
}

func (w *Waiter) timedOut() turn.Outcome {
	if w.state.Over() { // at the same moment
		return w.state.Outcome()
	}
	return turn.Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_TIMED_OUT, End: w.s.journal.Last()}
}

// silent returns for how long nothing has happened although nothing is outstanding.
func (s *Session) silent() time.Duration {
	pending := s.callbacks.Registry().Len() > 0
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn.Silent(time.Now(), pending)
}

// TurnRunning reports whether a turn runs.
func (s *Session) TurnRunning() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn.Busy()
}

// OutcomeOf is how the turn of a message ended, as far as the journal tells.
func (s *Session) OutcomeOf(ctx context.Context, at journal.Position) turn.Outcome {
	r := turn.NewReplay(turnReason)
	event.Scan(ctx, s.journal, at, r.Apply)
	return r.Outcome(s.journal.Last())
}
