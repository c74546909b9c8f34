package session

import (
	"context"
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Shutdown has the CLI shut the session down: what goes on in it ends, and the history is
// complete. What the CLI keeps of it after that takes messages and does nothing with them,
// and cannot be resumed; so the session leaves the runtime, and is loaded by whatever needs
// it next.
func (s *Session) Shutdown(ctx context.Context, params jsonobj.Object) (json.RawMessage, journal.Position, error) {
	if err := lock(ctx, s.gate); err != nil {
		return nil, journal.Position{}, err
	}
	defer unlock(s.gate)
	s.mu.Lock()
	rt, state, err := s.runtime, s.state, s.usable()
	s.mu.Unlock()
	if err != nil {
		return nil, journal.Position{}, err
	}
	if state != Loaded { // that it left its runtime ended what went on in it
		return json.RawMessage(`null`), s.journal.Last(), nil
	}
	result, at, err := s.call(ctx, rt, "session.shutdown", params)
	if err != nil {
		return nil, at, err
	}
	s.mu.Lock()
	here := s.state == Loaded && s.runtime == rt
	if here {
		s.state, s.intake.Internal = Unloaded, true // whoever needs it waits for the gate
		s.turns.Lose(bridgev1.TurnStatus_TURN_STATUS_ABORTED)
		s.callbacks.Withdraw(func(*callback.Pending) bool { return true }, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_SESSION_ENDED)
	}
	s.mu.Unlock()
	if !here {
		return result, at, nil
	}
	return result, at, s.destroy(ctx, rt)
}
