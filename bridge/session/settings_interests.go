package session

import (
	"context"
	"crypto/rand"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// maxInterests bounds the event types that callers register an interest in.
const maxInterests = 256

// Register asks for the events of a type that the CLI only sends on request. The CLI sees one
// interest, however many callers have it; the handle ends the caller's own.
func (st *Settings) Register(ctx context.Context, eventType string) (handle string, err error) {
	if handle, err = st.addInterest(eventType); err != nil {
		return "", err
	}
	if err := st.s.participants.sync(ctx); err != nil {
		st.Unregister(handle)
		return "", err
	}
	return handle, nil
}

func (st *Settings) addInterest(eventType string) (handle string, err error) {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	if len(st.State.Registered) >= maxInterests {
		return "", fault.New(fault.LimitExceeded, "the session has %d registered interests", maxInterests).
			With("limit", "interests")
	}
	if st.State.Registered == nil {
		st.State.Registered = map[string]string{}
	}
	handle = "i-" + rand.Text()
	st.State.Registered[handle] = eventType
	st.s.markDirty()
	return handle, nil
}

// Unregister ends the interest of a handle. The CLI goes on sending the events until the session is
// loaded again: another caller may read them.
func (st *Settings) Unregister(handle string) {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	delete(st.State.Registered, handle)
	st.s.markDirty()
}
