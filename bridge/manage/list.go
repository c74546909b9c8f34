package manage

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Home returns the profile in whose home a session is: the caller's, else the session's, else the
// tenant's default.
func (svc *Sessions) Home(ctx context.Context, id string, m *bridgev1.RuntimeProfile) (runtime.Profile, error) {
	// The home of a session of another tenant is that tenant's: no caller of this one looks there.
	if e := svc.cfg.Store.Own(ctx, id); m == nil && e != nil {
		return svc.cfg.Runtimes.ProfileNow(e)
	}
	return svc.cfg.Tenants.ReadProfile(ctx, m, "runtime_profile", id)
}

// stored returns a session's metadata in the CLI's history, nil if the history does not contain it.
func (svc *Sessions) stored(ctx context.Context, p runtime.Profile, id string) (*metadata, error) {
	var params jsonobj.Object
	params.SetString("sessionId", id)
	var r struct{ Session *metadata }
	if err := svc.cfg.Runtimes.Call(ctx, p, "session.getMetadata", params, &r); err != nil {
		if fault.ReasonOf(err) == fault.SessionNotFound {
			return nil, nil
		}
		return nil, err
	}
	return r.Session, nil
}

// GetSession describes one session.
func (svc *Sessions) GetSession(
	ctx context.Context, r *bridgev1.GetSessionRequest,
) (*bridgev1.GetSessionResponse, error) {
	e, err := svc.cfg.Store.OpenEntry(ctx, r.GetSessionId())
	if err != nil && (fault.ReasonOf(err) != fault.SessionNotFound || svc.disconnected(ctx, r.GetSessionId())) {
		return nil, err
	}
	if tenancy.IsShared(r.GetSessionId()) {
		return sharedSession(ctx, e, err)
	}
	p, metaErr := svc.Home(ctx, r.GetSessionId(), r.GetRuntimeProfile())
	if metaErr != nil {
		return nil, metaErr
	}
	var m *metadata
	if p.SessionFS == nil || err != nil { // else only its own participants know
		m, metaErr = svc.stored(ctx, p, r.GetSessionId())
	}
	if err != nil {
		damaged := svc.cfg.Store.Damaged(caller.From(ctx).Tenant, r.GetSessionId())
		switch {
		case damaged != nil && m == nil: // the damage may be the reason for which the history has no entry
			return &bridgev1.GetSessionResponse{Session: damaged}, nil
		case metaErr != nil:
			return nil, metaErr
		case m == nil:
			return nil, err
		}
		return &bridgev1.GetSessionResponse{Session: m.onto(damaged)}, nil
	}
	out := e.FullSnapshot(caller.From(ctx).Tenant)
	if m != nil {
		out = m.onto(out)
	}
	position.Record(ctx, e.Session.Journal().Last())
	return &bridgev1.GetSessionResponse{Session: out}, nil
}

// sharedSession describes a session that another tenant shares; err says why there is none. It does
// not read the history in the owner's home, which needs one of the owner's CLI processes.
func sharedSession(ctx context.Context, e *sessions.Entry, err error) (*bridgev1.GetSessionResponse, error) {
	if err != nil {
		return nil, err
	}
	position.Record(ctx, e.Session.Journal().Last())
	return &bridgev1.GetSessionResponse{Session: e.Snapshot(caller.From(ctx).Tenant)}, nil
}

// disconnected reports whether the bridge has the session, disconnected.
func (svc *Sessions) disconnected(ctx context.Context, id string) bool {
	e := svc.cfg.Store.Own(ctx, id)
	return e != nil && e.Session.Loader().State() == session.Disconnected
}

// ListSessions lists the sessions that are open or in the CLI's history.
func (svc *Sessions) ListSessions(
	ctx context.Context, r *bridgev1.ListSessionsRequest,
) (*bridgev1.ListSessionsResponse, error) {
	size, begin, err := fields.Page(r)
	if err != nil {
		return nil, err
	}
	if err := sessions.CheckFilter(r.GetFilter(), "filter"); err != nil {
		return nil, err
	}
	homes := svc.cfg.Runtimes.Homes(ctx)
	if m := r.GetRuntimeProfile(); m != nil {
		p, err := svc.cfg.Tenants.ReadProfile(ctx, m, "runtime_profile", "")
		if err != nil {
			return nil, err
		}
		homes = []runtime.Profile{p}
	}
	sessions, err := svc.list(ctx, homes, r)
	if err != nil {
		return nil, err
	}
	out := &bridgev1.ListSessionsResponse{}
	out.Sessions, out.NextPageToken = fields.Cut(sessions, begin, size)
	return out, nil
}

// list returns the sessions of the homes that a request asks for, and those that are shared with the caller's tenant,
// last used first. The CLI's history covers only the tenant's own sessions.
func (svc *Sessions) list(
	ctx context.Context, homes []runtime.Profile, r *bridgev1.ListSessionsRequest,
) ([]*bridgev1.Session, error) {
	f := r.GetFilter()
	var params, filter jsonobj.Object
	for member, value := range map[string]string{
		"cwd": f.GetWorkingDirectory(), "gitRoot": f.GetGitRoot(),
		"repository": f.GetRepository(), "branch": f.GetBranch(),
	} {
		if value != "" {
			filter.SetString(member, value)
		}
	}
	if len(filter) > 0 {
		params.Set("filter", filter.JSON())
	}
	var stored []*metadata
	for _, p := range homes {
		var r struct{ Sessions []*metadata }
		err := svc.cfg.Runtimes.Call(ctx, p, "session.list", params.Clone(), &r)
		if err != nil && fault.ReasonOf(err) != fault.RuntimeNotRunning {
			return nil, err
		}
		// Without a process, a caller who may not start one gets the sessions that the bridge has.
		stored = append(stored, r.Sessions...)
	}
	byID := map[string]*bridgev1.Session{}
	var shared []*bridgev1.Session
	for _, e := range svc.cfg.Store.Visible(ctx) {
		snapshot := e.FullSnapshot(caller.From(ctx).Tenant)
		switch {
		case !sessions.FitsFilter(snapshot, f):
		case tenancy.Foreign(ctx, e.Session):
			shared = append(shared, snapshot)
		default:
			byID[e.Session.ID()] = snapshot
		}
	}
	damaged := map[string]*bridgev1.Session{}
	for _, s := range svc.cfg.Store.AllDamaged(caller.From(ctx).Tenant) {
		damaged[s.SessionId] = s
		if byID[s.SessionId] == nil && sessions.FitsFilter(s, f) {
			byID[s.SessionId] = s
		}
	}
	for _, m := range stored {
		if byID[m.SessionID] == nil && len(f.GetLabels()) > 0 {
			continue // its labels do not fit, or are not in memory
		}
		if !r.GetIncludeHistory() && !svc.cfg.Store.Knows(ctx, m.SessionID) {
			continue
		}
		byID[m.SessionID] = m.onto(cmp.Or(byID[m.SessionID], damaged[m.SessionID]))
	}
	out := slices.AppendSeq(shared, maps.Values(byID))
	slices.SortFunc(out, func(a, b *bridgev1.Session) int {
		newer := b.GetUpdateTime().AsTime().Compare(a.GetUpdateTime().AsTime())
		return cmp.Or(newer, cmp.Compare(a.SessionId, b.SessionId))
	})
	return out, nil
}

// GetLastSession returns the session that was used last.
func (svc *Sessions) GetLastSession(
	ctx context.Context, r *bridgev1.GetLastSessionRequest,
) (*bridgev1.GetLastSessionResponse, error) {
	p, err := svc.cfg.Tenants.ReadProfile(ctx, r.GetRuntimeProfile(), "runtime_profile", "")
	if err != nil {
		return nil, err
	}
	var out struct{ SessionID string }
	if err := svc.cfg.Runtimes.Call(ctx, p, "session.getLastId", nil, &out); err != nil {
		return nil, err
	}
	return &bridgev1.GetLastSessionResponse{SessionId: out.SessionID}, nil
}
