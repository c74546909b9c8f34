package session

import (
	"context"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Continues reports whether the agent is told to continue turns that end with their CLI process.
func (s *Session) Continues() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settings.State.Continues
}

// Follow returns a waiter for the turn of w, which a message began. If the turn is lost with its CLI process and the session
// Continues, the waiter also waits for the turn with which the agent continues it, and has the outcome of the last of them.
func (s *Session) Follow(w *Waiter, message string) *Waiter {
	state := turn.NewWaiter(0)
	s.mu.Lock()
	defer s.mu.Unlock()
	w.state.Then(func(out turn.Outcome) {
		if out.Lost() && s.settings.State.Continues {
			s.host.Go(func(ctx context.Context) { s.follow(ctx, state, out, message) })
		} else {
			state.Finish(out)
		}
	})
	return s.turns.waiter(state)
}

// TurnOf returns a waiter, as Follow does, for the turn of a message that the CLI has accepted. The turn may have ended,
// with its CLI process at the latest. found is false if the journal lacks the message; otherwise at is where it is. The
// errors are those of Sender.Repeat.
func (s *Session) TurnOf(ctx context.Context, message string) (w *Waiter, at journal.Position, found bool, err error) {
	again, err := s.sender.Repeat(ctx, message)
	if err != nil {
		return nil, at, false, err
	}
	at, found = s.prompts.Locate(ctx, message)
	if w = again.Waiter; w == nil {
		out := turn.Outcome{Status: bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST, End: s.journal.Last()}
		if found {
			out = s.turns.OutcomeOf(ctx, at)
		}
		w = EndedWaiter(out)
	}
	return s.Follow(w, message), at, found, nil
}

// follow ends a waiter whose turn was lost, when the turns that continue that one have ended.
func (s *Session) follow(ctx context.Context, w *turn.Waiter, out turn.Outcome, message string) {
	for out.Lost() {
		var next *Waiter
		if next, message = s.continuation(ctx, out, message); next == nil {
			break
		}
		over, outcome := next.Done()
		select {
		case <-over:
		case <-ctx.Done():
			return // callers end with the bridge, too
		}
		ended := outcome()
		if ended.Err != nil { // the message that tells the agent to continue is lost, not the one that is followed
			break
		}
		out = ended
	}
	w.Finish(out)
}

// continuation returns a waiter for the turn that continues a lost one, and the message that began it; nil if there is
// none. The load of the session decides that: the agent is told to continue, or the CLI does by itself.
func (s *Session) continuation(ctx context.Context, lost turn.Outcome, message string) (*Waiter, string) {
	if _, err := s.loader.Load(ctx); err != nil {
		return nil, ""
	}
	if err := s.prompts.awaitRedelivery(ctx); err != nil {
		return nil, ""
	}
	if told := s.toldAfter(ctx, lost.End, message); told != "" {
		again, err := s.sender.Repeat(ctx, told)
		if err != nil {
			return nil, ""
		}
		if again.Waiter != nil {
			return again.Waiter, told
		}
		if out, ok := s.outcomeOf(ctx, told); ok {
			return EndedWaiter(out), told
		}
		return nil, ""
	}
	if _, err := s.sender.Repeat(ctx, message); err != nil { // the CLI has lost it, so that another turn runs, or has run
		return nil, ""
	}
	if w := s.turns.continuing(); w != nil {
		return w, message
	}
	// The CLI may have finished what it went on with by itself.
	if out, ok := s.outcomeOf(ctx, message); ok && !out.Lost() {
		return EndedWaiter(out), message
	}
	return nil, ""
}

// toldAfter returns the message that told the agent to continue a turn that a message began and that was lost at a position;
// "" if it was not told.
func (s *Session) toldAfter(ctx context.Context, lost journal.Position, began string) (message string) {
	for _, told := range slices.Backward(s.prompts.Outbox().Continuations()) {
		if told.As[0] == began { // a replay may see the end of its turn before the note
			break
		}
		after := lost.Before(told.At)
		if !after { // the note may have come before the message, which is where a replay sees that the turn was lost
			at, found := s.prompts.Locate(ctx, told.As[0])
			after = found && lost.Before(at)
		}
		if !after {
			break
		}
		message = told.As[0]
	}
	return message
}

// outcomeOf returns how the turn of a message ended, as far as the journal shows; ok is false if it lacks the message.
func (s *Session) outcomeOf(ctx context.Context, message string) (out turn.Outcome, ok bool) {
	at, found := s.prompts.Locate(ctx, message)
	if !found {
		return turn.Outcome{}, false
	}
	return s.turns.OutcomeOf(ctx, at), true
}
