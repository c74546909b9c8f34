package session

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turns"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Continues reports whether the agent is told to continue turns that end with their CLI process.
func (s *Session) Continues() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.settings.State.Continues
}

// Follow returns a waiter that waits for the turn of w, which message began, and, while the session Continues and the
// turn is lost with its CLI process, for the turn with which the agent continues it. Its outcome is that of the last of
// these turns. For a session that does not continue turns, Follow returns w.
func (s *Session) Follow(w *turns.Waiter, message string) *turns.Waiter {
	if !s.Continues() {
		return w
	}
	state := &turn.Waiter{}
	state.Init()
	s.host.Go(func(ctx context.Context) {
		for next := w; next != nil; {
			over, outcome := next.Done()
			select {
			case <-over:
			case <-ctx.Done():
				return
			}
			out := outcome()
			if next, message = s.continuation(ctx, out, message); next == nil {
				state.Finish(out)
			}
		}
	})
	return s.turns.Waiter(state)
}

// continuation returns a waiter for the turn that continues a turn with an outcome, and the message that began it; nil if
// there is none. The load of the session decides that: the agent is told to continue, or the CLI does by itself.
func (s *Session) continuation(ctx context.Context, out turn.Outcome, message string) (*turns.Waiter, string) {
	if out.Status != bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST || out.Err != nil {
		return nil, ""
	}
	if _, err := s.loader.Load(ctx); err != nil {
		return nil, ""
	}
	if err := s.prompts.AwaitDelivery(ctx); err != nil {
		return nil, ""
	}
	if told := s.toldAfter(ctx, out.End); told != "" {
		again, err := s.sender.Repeat(ctx, told)
		if err != nil {
			return nil, ""
		}
		if again.Waiter != nil {
			return again.Waiter, told
		}
		if out, ok := s.outcomeOf(ctx, told); ok {
			return turns.Ended(out), told
		}
		return nil, ""
	}
	if w := s.turns.Continuing(); w != nil {
		return w, message
	}
	// The CLI may have finished already what it went on with by itself.
	if out, ok := s.outcomeOf(ctx, message); ok && out.Status != bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST {
		return turns.Ended(out), message
	}
	return nil, ""
}

// toldAfter returns the message that told the agent to continue a turn that was lost at a position; "" if it was not told.
func (s *Session) toldAfter(ctx context.Context, lost journal.Position) string {
	for _, told := range s.prompts.Box().Continuations() {
		at, found := s.prompts.Locate(ctx, told.As[0])
		if !found { // CLI 1.0.81 does not tell the ids of messages
			at = told.At
		}
		if lost.Before(at) {
			return told.As[0]
		}
	}
	return ""
}

// outcomeOf returns how the turn of a message ended, as far as the journal shows; ok is false if it lacks the message.
func (s *Session) outcomeOf(ctx context.Context, message string) (out turn.Outcome, ok bool) {
	at, found := s.prompts.Locate(ctx, message)
	if !found {
		return turn.Outcome{}, false
	}
	return s.turns.OutcomeOf(ctx, at), true
}
