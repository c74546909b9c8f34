package bridge

import (
	"context"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/registry"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
)

// known returns the session of that id that the caller's own tenant has; nil if it has
// none. Sessions of other tenants have names, not ids, and are not found.
func (b *Bridge) known(ctx context.Context, id string) *registry.Entry {
	return b.sessions.Get(session.Key(caller.From(ctx).Tenant, id))
}

// find returns the session that the caller means by an id or, of a session that is shared with
// its tenant, by a name. It is the one look-up for callers: a session of another tenant comes out
// of it only if that tenant shares it for what the call does, the caller's tenant has accepted,
// and the server has checked what the call says by the rules for guests. That a session is
// another tenant's, and that there is none, take the same look-ups and give the same answer.
func (b *Bridge) find(ctx context.Context, id string) (*registry.Entry, error) {
	c := caller.From(ctx)
	e := b.sessions.Get(tenancy.KeyOf(c.Tenant, id))
	if e == nil {
		return nil, session.NotFound(id)
	}
	if !tenancy.IsShared(id) {
		return e, nil
	}
	granted := e.Shares.Class(c.Tenant)
	if granted == caller.Unclassed {
		return nil, session.NotFound(id)
	}
	if c.Class > granted {
		return nil, fault.New(fault.Forbidden, "session %q is shared with the tenant for calls of the class %q, this call has the class %q",
			id, granted, c.Class).WithField("session_id")
	}
	return e, caller.CheckGuest(ctx, e.Session.Tenant())
}

// checkOwn checks the id of a session for what only its own tenant does with it.
func (b *Bridge) checkOwn(ctx context.Context, id, field string) error {
	if !tenancy.IsShared(id) {
		return tenancy.CheckID(id, field)
	}
	if _, err := b.find(ctx, id); err != nil {
		return fields.Rename(err, "session_id", field)
	}
	return fault.New(fault.Forbidden, "session %q is another tenant's: only that tenant resumes and disconnects it", id).WithField(field)
}

// shows reports whether a tenant may know of a session: its own, or one whose share it has
// accepted.
func shows(e *registry.Entry, tenant string) bool {
	return e.Session.Tenant() == tenant || e.Shares.Class(tenant) != caller.Unclassed
}

// visible returns the sessions that the caller may know of and use, those that are shared with
// its tenant included, in no order. nameOf is what the caller calls each.
func (b *Bridge) visible(ctx context.Context) []*registry.Entry {
	tenant := caller.From(ctx).Tenant
	return slices.DeleteFunc(b.all(), func(e *registry.Entry) bool { return !shows(e, tenant) })
}
