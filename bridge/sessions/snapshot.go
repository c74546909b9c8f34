package sessions

import (
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// VisibleTo reports whether a tenant may know of the session: it owns the session, or has accepted
// its share.
func (e *Entry) VisibleTo(tenant string) bool {
	return e.Session.Tenant() == tenant || e.Shares.Class(tenant) != caller.Unclassed
}

// Snapshot describes the session to callers of a tenant: by the name that they use, and with its
// owner if they are guests.
func (e *Entry) Snapshot(tenant string) *bridgev1.Session {
	s := e.Session
	out := s.Snapshot()
	if s.Tenant() != tenant {
		out.SessionId, out.Owner = tenancy.ShareName(s.Tenant(), s.ID()), tenancy.PublicTenant(s.Tenant())
		out.Access = tenancy.ShareAccess(e.Shares.Class(tenant))
	}
	return out
}

// FullSnapshot is Snapshot with the shares, which only callers of the owner may know.
func (e *Entry) FullSnapshot(tenant string) *bridgev1.Session {
	out := e.Snapshot(tenant)
	if e.Session.Tenant() == tenant {
		out.Shares = e.Shares.List(tenant, e.Session.ID())
	}
	return out
}
