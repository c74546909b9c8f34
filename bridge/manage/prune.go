package manage

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// minPruneIdle is the shortest idle_for.
const minPruneIdle = time.Minute

// PruneSessions deletes the sessions of this server that have not been used for some time.
func (svc *Sessions) PruneSessions(
	ctx context.Context, r *bridgev1.PruneSessionsRequest,
) (*bridgev1.PruneSessionsResponse, error) {
	limit, idle, err := checkPrune(r)
	if err != nil {
		return nil, err
	}
	before := time.Now().Add(-idle)
	listed, err := svc.list(ctx, svc.cfg.Runtimes.Homes(ctx), &bridgev1.ListSessionsRequest{Filter: r.GetFilter()})
	if err != nil {
		return nil, err
	}
	out := &bridgev1.PruneSessionsResponse{}
	for _, s := range slices.Backward(listed) {
		if len(out.SessionIds)+len(out.Failures) == limit || s.GetUpdateTime().AsTime().After(before) {
			break
		}
		if !svc.prunable(ctx, s) {
			continue
		}
		if !r.GetDryRun() {
			err = svc.delete(ctx, &bridgev1.DeleteSessionRequest{SessionId: s.GetSessionId()}, (*session.Loader).DeleteUnused)
		}
		switch reason := fault.ReasonOf(err); {
		case err == nil:
			out.SessionIds = append(out.SessionIds, s.GetSessionId())
		case ctx.Err() != nil:
			return nil, session.Classify(context.Cause(ctx), "")
		case reason == fault.SessionBusy, reason == fault.SessionNotFound: // it was used, or deleted, in the meantime
		default:
			failure, _ := fault.Failure(err)
			out.Failures = append(out.Failures, &bridgev1.PruneFailure{SessionId: s.GetSessionId(), Failure: failure})
		}
	}
	return out, nil
}

// checkPrune reads the bounds of a request.
func checkPrune(r *bridgev1.PruneSessionsRequest) (limit int, idle time.Duration, err error) {
	if err := sessions.CheckFilter(r.GetFilter(), "filter"); err != nil {
		return 0, 0, err
	}
	if n := r.GetMaxSessions(); n < 0 || n > fields.MaxPageSize {
		return 0, 0, fault.New(fault.InvalidField, "max_sessions is %d, not between 1 and %d", n, fields.MaxPageSize).
			WithField("max_sessions")
	}
	if r.GetIdleFor() == nil {
		return 0, 0, fault.New(fault.InvalidField, "idle_for is not set").WithField("idle_for")
	}
	idle, err = fields.Duration(r.GetIdleFor(), "idle_for", minPruneIdle, math.MaxInt64)
	return cmp.Or(int(r.GetMaxSessions()), fields.DefaultPageSize), idle, err
}

// prunable reports whether this server has a session that its own tenant alone can use, and that is not in use.
func (svc *Sessions) prunable(ctx context.Context, s *bridgev1.Session) bool {
	id := s.GetSessionId()
	if tenancy.IsShared(id) || s.GetUpdateTime().GetSeconds() <= 0 || s.GetDamage() != nil || !svc.cfg.Store.Has(ctx, id) {
		return false
	}
	e, err := svc.cfg.Store.OwnOrEvicted(ctx, id)
	if err != nil || e.Session.Loader().InUse() {
		return false
	}
	return !slices.ContainsFunc(e.Shares.List(caller.From(ctx).Tenant, id), func(s *bridgev1.SessionShare) bool {
		return s.GetState() != bridgev1.ShareState_SHARE_STATE_DECLINED
	})
}
