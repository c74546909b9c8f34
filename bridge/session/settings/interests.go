package settings

import (
	"context"
	"crypto/rand"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// maxInterests bounds the event types that callers register an interest in.
const maxInterests = 256

// Register asks for the events of a type that the CLI only sends on request. The CLI sees one
// interest, however many callers have it; the handle ends the caller's own.
func (s *Settings) Register(ctx context.Context, eventType string) (handle string, err error) {
	if handle, err = s.addInterest(eventType); err != nil {
		return "", err
	}
	if err := s.cfg.Participants.Sync(ctx); err != nil {
		s.Release(handle)
		return "", err
	}
	return handle, nil
}

func (s *Settings) addInterest(eventType string) (handle string, err error) {
	s.cfg.Lock.Lock()
	defer s.cfg.Lock.Unlock()
	if len(s.State.Registered) >= maxInterests {
		return "", fault.New(fault.LimitExceeded, "the session has %d registered interests", maxInterests).
			With("limit", "interests")
	}
	if s.State.Registered == nil {
		s.State.Registered = map[string]string{}
	}
	handle = "i-" + rand.Text()
	s.State.Registered[handle] = eventType
	s.cfg.Tx.MarkDirty()
	return handle, nil
}

// Release ends the interest of a handle. The CLI goes on sending the events until the session is
// loaded again: another caller may read them.
func (s *Settings) Release(handle string) {
	s.cfg.Lock.Lock()
	defer s.cfg.Lock.Unlock()
	delete(s.State.Registered, handle)
	s.cfg.Tx.MarkDirty()
}
