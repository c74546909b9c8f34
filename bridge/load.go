package bridge

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Loaded reports whether a session is in memory.
func (b *Bridge) Loaded(key string) bool { return b.store.Get(key) != nil }

// Load takes over a session that another server has stored in the directory: it restores the session, and the requests
// that are remembered of it, as New does for all sessions at the start. It reports whether there is such a session. A
// session that is in memory stays as it is. The error is that of the directory, or says why the session cannot be
// restored.
func (b *Bridge) Load(ctx context.Context, key string, requests func() []backend.Request) (bool, error) {
	e, loaded, err := b.store.Load(ctx, key, func() { b.operations.Restore(nil, requests()) })
	if !loaded {
		return e != nil, err
	}
	b.updated(e.Session, bridgev1.SessionChange_SESSION_CHANGE_UPDATED)
	if e.Session.Awaited() {
		b.fleet.Revive([]*session.Session{e.Session})
	}
	return true, nil
}
