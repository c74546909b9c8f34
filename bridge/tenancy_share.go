package bridge

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/registry"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/share"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// shareClasses are the classes of calls that a session may be shared for.
var shareClasses = map[bridgev1.ShareAccess]caller.Class{
	bridgev1.ShareAccess_SHARE_ACCESS_OBSERVE:     caller.Read,
	bridgev1.ShareAccess_SHARE_ACCESS_PARTICIPATE: caller.Drive,
}

// accessOf is the API's word for a class that a session is shared for.
func accessOf(class caller.Class) bridgev1.ShareAccess {
	for access, c := range shareClasses {
		if c == class {
			return access
		}
	}
	return bridgev1.ShareAccess_SHARE_ACCESS_UNSPECIFIED
}

// shareStates are the API's words for how far a share has come.
var shareStates = map[share.State]bridgev1.ShareState{
	share.Offered:  bridgev1.ShareState_SHARE_STATE_OFFERED,
	share.Accepted: bridgev1.ShareState_SHARE_STATE_ACCEPTED,
	share.Declined: bridgev1.ShareState_SHARE_STATE_DECLINED,
}

// ShareSession offers a session to another tenant.
func (b *Bridge) ShareSession(ctx context.Context, r *bridgev1.ShareSessionRequest) (*bridgev1.ShareSessionResponse, error) {
	class, ok := shareClasses[r.GetAccess()]
	if !ok {
		return nil, fault.New(fault.InvalidField, "access is %v", r.GetAccess()).WithField("access")
	}
	e, with, err := b.sharing(ctx, r.GetSessionId(), r.GetTenant())
	if err != nil {
		return nil, err
	}
	if !e.Shares.Offer(with, class) {
		return nil, fault.New(fault.LimitExceeded, "the session is shared with %d tenants, and no more are allowed: unshare it with one", share.Max).
			With("limit", "shares")
	}
	b.shareChanged(ctx, e, "session.share", with, class)
	return &bridgev1.ShareSessionResponse{Shares: sharesOf(e)}, nil
}

// UnshareSession takes that back. Calls that are under way end.
func (b *Bridge) UnshareSession(ctx context.Context, r *bridgev1.UnshareSessionRequest) (*bridgev1.UnshareSessionResponse, error) {
	e, with, err := b.sharing(ctx, r.GetSessionId(), r.GetTenant())
	if err != nil {
		return nil, err
	}
	if e.Shares.Withdraw(with) {
		b.tellGuests(e, with, bridgev1.SessionChange_SESSION_CHANGE_UNSHARED)
	}
	b.shareChanged(ctx, e, "session.unshare", with, caller.Unclassed)
	return &bridgev1.UnshareSessionResponse{Shares: sharesOf(e)}, nil
}

// AcceptShare accepts an offer for the caller's tenant.
func (b *Bridge) AcceptShare(ctx context.Context, r *bridgev1.AcceptShareRequest) (*bridgev1.AcceptShareResponse, error) {
	e, err := b.offered(ctx, r.GetSessionId())
	if err != nil {
		return nil, err
	}
	tenant := caller.From(ctx).Tenant
	known, changed := e.Shares.Accept(tenant)
	if !known {
		return nil, session.NotFound(r.GetSessionId())
	}
	if changed {
		b.shareChanged(ctx, e, "session.share_accept", tenant, e.Shares.Class(tenant))
		b.tellGuests(e, tenant, bridgev1.SessionChange_SESSION_CHANGE_SHARED)
	}
	return &bridgev1.AcceptShareResponse{Session: snapshotOf(ctx, e)}, nil
}

// DeclineShare declines an offer, or gives up what was accepted.
func (b *Bridge) DeclineShare(ctx context.Context, r *bridgev1.DeclineShareRequest) (*bridgev1.DeclineShareResponse, error) {
	e, err := b.offered(ctx, r.GetSessionId())
	if err != nil {
		return nil, err
	}
	tenant := caller.From(ctx).Tenant
	switch e.Shares.Decline(tenant) {
	case share.Accepted:
		b.tellGuests(e, tenant, bridgev1.SessionChange_SESSION_CHANGE_UNSHARED)
	case share.Offered:
	case share.Declined:
		return &bridgev1.DeclineShareResponse{}, nil
	default:
		return nil, session.NotFound(r.GetSessionId())
	}
	b.shareChanged(ctx, e, "session.share_decline", tenant, caller.Unclassed)
	return &bridgev1.DeclineShareResponse{}, nil
}

// ListShareOffers lists what is offered to the caller's tenant.
func (b *Bridge) ListShareOffers(ctx context.Context, r *bridgev1.ListShareOffersRequest) (*bridgev1.ListShareOffersResponse, error) {
	size, begin, err := pageOf(r)
	if err != nil {
		return nil, err
	}
	tenant := caller.From(ctx).Tenant
	var offers []*bridgev1.ShareOffer
	for _, e := range b.all() {
		if g, ok := e.Shares.Grant(tenant); ok && g.State == share.Offered {
			offers = append(offers, &bridgev1.ShareOffer{
				SessionId: tenancy.NameFor(e.Session, tenant), Owner: share.PublicTenant(e.Session.Tenant()), Access: accessOf(g.Class),
			})
		}
	}
	slices.SortFunc(offers, func(a, b *bridgev1.ShareOffer) int { return cmp.Compare(a.GetSessionId(), b.GetSessionId()) })
	out := &bridgev1.ListShareOffersResponse{}
	out.Offers, out.NextPageToken = pageIn(offers, begin, size)
	return out, nil
}

// offered returns the session of a name, for the answer to an offer of it. Whether it was
// offered is to be seen.
func (b *Bridge) offered(ctx context.Context, name string) (*registry.Entry, error) {
	if err := tenancy.CheckName(name, "session_id"); err != nil {
		return nil, err
	}
	c := caller.From(ctx)
	e := b.sessions.Get(tenancy.KeyOf(c.Tenant, name))
	if e == nil || e.Session.Tenant() == c.Tenant || e.Session.Usable() != nil {
		return nil, session.NotFound(name)
	}
	return e, nil
}

// shareChanged keeps and records a change of a session's shares.
func (b *Bridge) shareChanged(ctx context.Context, e *registry.Entry, action, with string, class caller.Class) {
	b.saver.Save(e)
	s := e.Session
	entry := audit.Entry{Action: action, Outcome: audit.Done, Session: s.ID(), Owner: s.Tenant(), With: share.PublicTenant(with)}
	if class != caller.Unclassed {
		entry.Access = class.String()
	}
	b.cfg.Audit.Record(ctx, entry)
}

// tellGuests tells the watchers of one tenant that a session is shared with it, or no longer is.
func (b *Bridge) tellGuests(e *registry.Entry, with string, what bridgev1.SessionChange) {
	b.watchers.Publish(change{e, what, e.Session.ID(), func(tenant string) bool { return tenant == with }})
}

// sharing reads whose session is shared with whom.
func (b *Bridge) sharing(ctx context.Context, id, tenant string) (e *registry.Entry, with string, err error) {
	if e, err = b.openEntry(ctx, id); err != nil {
		return nil, "", err
	}
	if tenancy.Foreign(ctx, e.Session) {
		return nil, "", fault.New(fault.Forbidden, "session %q is another tenant's", id).WithField("session_id")
	}
	with = share.InternalTenant(tenant)
	if !caller.ValidTenant(tenant) || with == e.Session.Tenant() {
		return nil, "", fault.New(fault.InvalidField, "%q is no other tenant", tenant).WithField("tenant")
	}
	return e, with, nil
}

// sharesOf gives a session's shares the form of the API.
func sharesOf(e *registry.Entry) (out []*bridgev1.SessionShare) {
	grants := e.Shares.Grants()
	for _, tenant := range slices.Sorted(maps.Keys(grants)) {
		g := grants[tenant]
		out = append(out, &bridgev1.SessionShare{
			Tenant: share.PublicTenant(tenant), Access: accessOf(g.Class), State: shareStates[g.State], SessionId: tenancy.NameFor(e.Session, tenant),
		})
	}
	return out
}

// snapshotAs is the session as callers of a tenant may see it: by the name that they use, and
// with its owner if they are guests. e is its entry, nil if the session was removed.
func snapshotAs(s *session.Session, e *registry.Entry, tenant string) *bridgev1.Session {
	out := s.Snapshot()
	if s.Tenant() != tenant {
		out.SessionId, out.Owner = tenancy.NameFor(s, tenant), share.PublicTenant(s.Tenant())
		if e != nil {
			out.Access = accessOf(e.Shares.Class(tenant))
		}
	}
	return out
}

// snapshotOf is the session as the caller may see it.
func snapshotOf(ctx context.Context, e *registry.Entry) *bridgev1.Session {
	return snapshotAs(e.Session, e, caller.From(ctx).Tenant)
}

// snapshotFor is snapshotOf with the shares: whom else it is shared with is for its own tenant
// to know.
func snapshotFor(ctx context.Context, e *registry.Entry) *bridgev1.Session {
	out := snapshotOf(ctx, e)
	if !tenancy.Foreign(ctx, e.Session) {
		out.Shares = sharesOf(e)
	}
	return out
}
