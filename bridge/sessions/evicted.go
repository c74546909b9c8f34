package sessions

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/registry"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// OwnOrEvicted returns the session of that id that the caller's own tenant has, also one that was disconnected and
// evicted from memory. It returns SESSION_NOT_FOUND if there is none.
func OwnOrEvicted(ctx context.Context, st *Store, id string) (*registry.Entry, error) {
	if e := st.Own(ctx, id); e != nil {
		return e, nil
	}
	tenant := caller.From(ctx).Tenant
	if d := st.cfg.Directory; d != nil {
		if state, err := d.Session(session.Key(tenant, id)); err == nil && state != nil {
			return evicted(ctx, st, tenant, id)
		}
	}
	return nil, st.explainDamage(ctx, id, session.NotFound(id))
}

// evicted brings an evicted session back into memory, where it remains disconnected.
func evicted(ctx context.Context, st *Store, tenant, id string) (*registry.Entry, error) {
	e, fresh, err := st.GetOrCreate(ctx, tenant, id)
	if err != nil {
		return nil, err
	}
	if fresh { // it was deleted at that moment
		st.Remove(e)
		return nil, session.NotFound(id)
	}
	if e.Session.Loader().State() == session.Disconnected {
		st.TrackDisconnected(e)
	}
	return e, nil
}
