package manage

import (
	"cmp"
	"context"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// SharedSessions has the sessions.
type SharedSessions interface {
	// OpenEntry returns a session that the caller may use.
	OpenEntry(ctx context.Context, id string) (*sessions.Entry, error)
	// Get returns the session of a key, nil if there is none.
	Get(key string) *sessions.Entry
	// Usable returns the sessions that their callers may use, of all tenants, in no order.
	Usable() []*sessions.Entry
	// Save saves a session now. It fails if another server has the session.
	Save(*sessions.Entry) error
}

// ShareWatchers receive changes of shares.
type ShareWatchers struct {
	// SharedSessions receives the changes for WatchSessions.
	Sessions interface {
		// ChangedFor publishes a change to the watchers of one tenant.
		ChangedFor(e *sessions.Entry, tenant string, what bridgev1.SessionChange)
	}
	// Pending receives them for WatchPending.
	Pending interface {
		// SharesChanged follows a change of a session's shares.
		SharesChanged(e *sessions.Entry)
	}
}

// Shares serves the calls that share a session with another tenant: offers, their acceptance and their end. The shares of
// a session are in its sessions.Entry. It is safe for concurrent use.
type Shares struct {
	sessions SharedSessions
	watchers ShareWatchers
	audit    audit.Sink
}

// NewShares returns a Shares.
func NewShares(s SharedSessions, w ShareWatchers, a audit.Sink) *Shares {
	return &Shares{sessions: s, watchers: w, audit: a}
}

// ShareSession offers a session to another tenant.
func (svc *Shares) ShareSession(
	ctx context.Context, r *bridgev1.ShareSessionRequest,
) (*bridgev1.ShareSessionResponse, error) {
	class, ok := tenancy.ShareClass(r.GetAccess())
	if !ok {
		return nil, fault.New(fault.InvalidField, "access is %v", r.GetAccess()).WithField("access")
	}
	e, with, err := svc.shared(ctx, r.GetSessionId(), r.GetTenant())
	if err != nil {
		return nil, err
	}
	if !e.Shares.Offer(with, class) {
		return nil, fault.New(fault.LimitExceeded,
			"the session is shared with %d tenants, and no more are allowed: unshare it with one", tenancy.MaxShares).
			With("limit", "shares")
	}
	if err := svc.changed(ctx, e, "session.share", with, class); err != nil {
		return nil, err
	}
	return &bridgev1.ShareSessionResponse{Shares: e.Shares.List(e.Session.Tenant(), e.Session.ID())}, nil
}

// UnshareSession withdraws a share. It ends the other tenant's calls in progress.
func (svc *Shares) UnshareSession(
	ctx context.Context, r *bridgev1.UnshareSessionRequest,
) (*bridgev1.UnshareSessionResponse, error) {
	e, with, err := svc.shared(ctx, r.GetSessionId(), r.GetTenant())
	if err != nil {
		return nil, err
	}
	if e.Shares.Withdraw(with) {
		svc.watchers.Sessions.ChangedFor(e, with, bridgev1.SessionChange_SESSION_CHANGE_UNSHARED)
	}
	if err := svc.changed(ctx, e, "session.unshare", with, caller.Unclassed); err != nil {
		return nil, err
	}
	return &bridgev1.UnshareSessionResponse{Shares: e.Shares.List(e.Session.Tenant(), e.Session.ID())}, nil
}

// AcceptShare accepts an offer for the caller's tenant.
func (svc *Shares) AcceptShare(
	ctx context.Context, r *bridgev1.AcceptShareRequest,
) (*bridgev1.AcceptShareResponse, error) {
	e, err := svc.offered(ctx, r.GetSessionId())
	if err != nil {
		return nil, err
	}
	tenant := caller.From(ctx).Tenant
	known, changed := e.Shares.Accept(tenant)
	if !known {
		return nil, session.NotFound(r.GetSessionId())
	}
	if changed {
		if err := svc.changed(ctx, e, "session.share_accept", tenant, e.Shares.Class(tenant)); err != nil {
			return nil, err
		}
		svc.watchers.Sessions.ChangedFor(e, tenant, bridgev1.SessionChange_SESSION_CHANGE_SHARED)
	}
	return &bridgev1.AcceptShareResponse{Session: e.Snapshot(tenant)}, nil
}

// DeclineShare declines an offer, or gives up what was accepted.
func (svc *Shares) DeclineShare(
	ctx context.Context, r *bridgev1.DeclineShareRequest,
) (*bridgev1.DeclineShareResponse, error) {
	e, err := svc.offered(ctx, r.GetSessionId())
	if err != nil {
		return nil, err
	}
	tenant := caller.From(ctx).Tenant
	switch e.Shares.Decline(tenant) {
	case tenancy.Accepted:
		svc.watchers.Sessions.ChangedFor(e, tenant, bridgev1.SessionChange_SESSION_CHANGE_UNSHARED)
	case tenancy.Offered:
	case tenancy.Declined:
		return &bridgev1.DeclineShareResponse{}, nil
	default:
		return nil, session.NotFound(r.GetSessionId())
	}
	if err := svc.changed(ctx, e, "session.share_decline", tenant, caller.Unclassed); err != nil {
		return nil, err
	}
	return &bridgev1.DeclineShareResponse{}, nil
}

// ListShareOffers lists the sessions that are offered to the caller's tenant.
func (svc *Shares) ListShareOffers(
	ctx context.Context, r *bridgev1.ListShareOffersRequest,
) (*bridgev1.ListShareOffersResponse, error) {
	size, begin, err := fields.Page(r)
	if err != nil {
		return nil, err
	}
	tenant := caller.From(ctx).Tenant
	var offers []*bridgev1.ShareOffer
	for _, e := range svc.sessions.Usable() {
		if g, ok := e.Shares.Grant(tenant); ok && g.State == tenancy.Offered {
			offers = append(offers, &bridgev1.ShareOffer{
				SessionId: tenancy.NameFor(e.Session, tenant), Owner: tenancy.PublicTenant(e.Session.Tenant()),
				Access: tenancy.ShareAccess(g.Class),
			})
		}
	}
	slices.SortFunc(offers, func(a, b *bridgev1.ShareOffer) int {
		return cmp.Compare(a.GetSessionId(), b.GetSessionId())
	})
	out := &bridgev1.ListShareOffersResponse{}
	out.Offers, out.NextPageToken = fields.Cut(offers, begin, size)
	return out, nil
}

// offered returns the session of a name, for the answer to an offer. The caller checks that the
// session was offered.
func (svc *Shares) offered(ctx context.Context, name string) (*sessions.Entry, error) {
	if err := tenancy.CheckName(name, "session_id"); err != nil {
		return nil, err
	}
	c := caller.From(ctx)
	e := svc.sessions.Get(tenancy.KeyOf(c.Tenant, name))
	if e == nil || e.Session.Tenant() == c.Tenant || e.Session.Loader().Usable() != nil {
		return nil, session.NotFound(name)
	}
	return e, nil
}

// changed saves, publishes and records a change of a session's shares.
func (svc *Shares) changed(ctx context.Context, e *sessions.Entry, action, with string, class caller.Class) error {
	if err := svc.sessions.Save(e); err != nil {
		return err
	}
	svc.watchers.Pending.SharesChanged(e)
	s := e.Session
	entry := audit.Entry{
		Action: action, Outcome: audit.Done, Session: s.ID(), Owner: s.Tenant(), With: tenancy.PublicTenant(with),
	}
	if class != caller.Unclassed {
		entry.Access = class.String()
	}
	svc.audit.Record(ctx, entry)
	return nil
}

// shared returns the session of a request and the tenant that it is shared with.
func (svc *Shares) shared(ctx context.Context, id, tenant string) (e *sessions.Entry, with string, err error) {
	if e, err = svc.sessions.OpenEntry(ctx, id); err != nil {
		return nil, "", err
	}
	if tenancy.Foreign(ctx, e.Session) {
		return nil, "", fault.New(fault.Forbidden, "session %q belongs to another tenant", id).WithField("session_id")
	}
	with = tenancy.InternalTenant(tenant)
	if !caller.ValidTenant(tenant) || with == e.Session.Tenant() {
		return nil, "", fault.New(fault.InvalidField, "%q is not the name of another tenant", tenant).WithField("tenant")
	}
	return e, with, nil
}
