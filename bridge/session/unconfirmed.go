package session

import (
	"cmp"
	"context"
	"errors"

	"github.com/copilot-grpc/copilot-grpc/bridge/session/prompts"
)

// GiveUp notes that the bridge stops trying to load the session, because of an error, and resolves
// the messages that a load would have resolved. The session is still loaded when a call needs it.
func (s *Session) GiveUp(ctx context.Context, err error) {
	if lock(ctx, s.gate) != nil {
		return
	}
	defer unlock(s.gate)
	var found prompts.Settlement
	if s.State() == Unloaded {
		found = s.prompts.LookUp(ctx, nil, cmp.Or(err, errNotLoaded))
	}
	s.mu.Lock()
	s.turns.Confirm()
	s.prompts.Settle(locked{s}, found)
	s.mu.Unlock()
	s.prompts.Flush()
}

// errNotLoaded is why GiveUp knows nothing if its caller does not say.
var errNotLoaded = errors.New("the session is not loaded")
