package bridge

import (
	"context"
	"maps"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/audit"
	"github.com/copilot-grpc/copilot-grpc/internal/caller"
)

// maxShares bounds the tenants that a session is shared with.
const maxShares = 64

// shareClasses are the classes of calls that a session may be shared for.
var shareClasses = map[bridgev1.ShareAccess]caller.Class{
	bridgev1.ShareAccess_SHARE_ACCESS_OBSERVE:     caller.Read,
	bridgev1.ShareAccess_SHARE_ACCESS_PARTICIPATE: caller.Drive,
}

// granted is the highest class of calls that the session is shared with a tenant for.
func (pl *place) granted(tenant string) caller.Class {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return pl.shares[tenant]
}

// grants returns all tenants that the session is shared with.
func (pl *place) grants() map[string]caller.Class {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return maps.Clone(pl.shares)
}

// ShareSession lets another tenant see a session, and take part in it.
func (b *Bridge) ShareSession(ctx context.Context, r *bridgev1.ShareSessionRequest) (*bridgev1.ShareSessionResponse, error) {
	class, ok := shareClasses[r.GetAccess()]
	if !ok {
		return nil, fault.New(fault.InvalidField, "access is %v", r.GetAccess()).WithField("access")
	}
	s, with, err := b.sharing(ctx, r.GetSessionId(), r.GetTenant())
	if err != nil {
		return nil, err
	}
	if err := b.share(s, with, class); err != nil {
		return nil, err
	}
	placeOf(s).dismiss() // it may be shared for less than before
	b.keep(s)
	b.cfg.Audit.Record(ctx, audit.Entry{
		Action: "session.share", Outcome: audit.Done, Session: s.ID(), Owner: s.Tenant(), With: r.GetTenant(), Access: class.String(),
	})
	return &bridgev1.ShareSessionResponse{Shares: sharesOf(s)}, nil
}

// UnshareSession takes that back. Calls that are under way end.
func (b *Bridge) UnshareSession(ctx context.Context, r *bridgev1.UnshareSessionRequest) (*bridgev1.UnshareSessionResponse, error) {
	s, with, err := b.sharing(ctx, r.GetSessionId(), r.GetTenant())
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	placeOf(s).unshare(with)
	if key := session.Key(with, s.ID()); b.shared[key] == s {
		delete(b.shared, key)
	}
	b.mu.Unlock()
	placeOf(s).dismiss()
	b.keep(s)
	b.cfg.Audit.Record(ctx, audit.Entry{
		Action: "session.unshare", Outcome: audit.Done, Session: s.ID(), Owner: s.Tenant(), With: r.GetTenant(),
	})
	return &bridgev1.UnshareSessionResponse{Shares: sharesOf(s)}, nil
}

// sharing reads whose session is shared with whom.
func (b *Bridge) sharing(ctx context.Context, id, tenant string) (s *session.Session, with string, err error) {
	if s, err = b.open(ctx, id); err != nil {
		return nil, "", err
	}
	own := caller.From(ctx).Tenant
	if s.Tenant() != own {
		return nil, "", fault.New(fault.Forbidden, "session %q is another tenant's", id).WithField("session_id")
	}
	with = tenant
	if tenant == caller.HostName {
		with = caller.HostTenant
	}
	if !caller.ValidTenant(tenant) || with == own {
		return nil, "", fault.New(fault.InvalidField, "%q is no other tenant", tenant).WithField("tenant")
	}
	return s, with, nil
}

// share notes that a session is shared.
func (b *Bridge) share(s *session.Session, with string, class caller.Class) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !placeOf(s).share(with, class) {
		return fault.New(fault.LimitExceeded, "the session is shared with %d tenants, and no more are allowed", maxShares).With("limit", "shares")
	}
	// Where two tenants share sessions of the same id, the first stays.
	if key := session.Key(with, s.ID()); b.shared[key] == nil || b.shared[key].Usable() != nil {
		b.shared[key] = s
	}
	return nil
}

func (pl *place) share(with string, class caller.Class) bool {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	if _, has := pl.shares[with]; !has && len(pl.shares) >= maxShares {
		return false
	}
	if pl.shares == nil {
		pl.shares = map[string]caller.Class{}
	}
	pl.shares[with] = class
	return true
}

func (pl *place) unshare(with string) {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	delete(pl.shares, with)
}

// unshareAll forgets that a session is shared that is no more. The caller holds mu.
func (b *Bridge) unshareAll(s *session.Session) {
	for with := range placeOf(s).grants() {
		if key := session.Key(with, s.ID()); b.shared[key] == s {
			delete(b.shared, key)
		}
	}
}

// sharesOf gives a session's shares the form of the API.
func sharesOf(s *session.Session) (out []*bridgev1.SessionShare) {
	grants := placeOf(s).grants()
	for _, tenant := range slices.Sorted(maps.Keys(grants)) {
		share := &bridgev1.SessionShare{Tenant: tenant}
		if tenant == caller.HostTenant {
			share.Tenant = caller.HostName
		}
		for access, class := range shareClasses {
			if class == grants[tenant] {
				share.Access = access
			}
		}
		out = append(out, share)
	}
	return out
}

// snapshotFor is the session as the caller may see it: whom else it is shared with is for its
// own tenant to know.
func snapshotFor(ctx context.Context, s *session.Session) *bridgev1.Session {
	out := s.Snapshot()
	if s.Tenant() == caller.From(ctx).Tenant {
		out.Shares = sharesOf(s)
	}
	return out
}
