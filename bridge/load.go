package bridge

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Load takes over a session that another server has stored in the directory: it restores the session, and the requests
// that are remembered of it, as New does for all sessions at the start. It reports whether there is such a session. A
// session that is in memory stays as it is. The error is that of the directory, or says why the session cannot be
// restored. Without its requests it is not restored: one that comes again would be carried out twice.
func (b *Bridge) Load(
	ctx context.Context, key string, requests func() ([]backend.Request, error),
) (bool, error) {
	e, loaded, err := b.store.Load(ctx, key, func() error {
		known, err := requests()
		if err == nil {
			b.operations.Restore(nil, known)
		}
		return err
	})
	if !loaded {
		return e != nil, err
	}
	b.SessionWatch.Changed(e, bridgev1.SessionChange_SESSION_CHANGE_UPDATED)
	if e.Session.Awaited() {
		b.fleet.Revive([]*session.Session{e.Session})
	}
	return true, nil
}

// Credentials returns the paths of the credentials of a session that the directory does not store. Another server that
// continues the session needs them from a caller.
func (b *Bridge) Credentials(key string) []string {
	e := b.store.Get(key)
	if e == nil {
		return nil
	}
	return b.store.Unsaved(e)
}

// AwaitRest waits until a session has no turn, for as long as ctx lasts.
func (b *Bridge) AwaitRest(ctx context.Context, key string) error {
	e := b.store.Get(key)
	if e == nil {
		return nil
	}
	return e.Session.Turns().AwaitRest(ctx)
}

// Uses returns what each tenant uses at this server of what is limited over all servers of a cluster.
func (b *Bridge) Uses() quota.Uses {
	out := b.admission.Uses()
	out.Add(b.fleet.Uses())
	return out
}
