package manage

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// UpdateLabels sets and removes labels of a session of the caller's tenant, and saves the session.
func (svc *Sessions) UpdateLabels(
	ctx context.Context, r *bridgev1.UpdateLabelsRequest,
) (*bridgev1.UpdateLabelsResponse, error) {
	if err := svc.cfg.Store.CheckOwn(ctx, r.GetSessionId(), "session_id"); err != nil {
		return nil, err
	}
	if err := sessions.CheckLabelUpdate(r.GetSet(), r.GetRemove()); err != nil {
		return nil, err
	}
	e, err := svc.cfg.Store.OpenEntry(ctx, r.GetSessionId())
	if err != nil {
		return nil, err
	}
	err = e.Session.UpdateLabels(func(labels map[string]string) (map[string]string, error) {
		return sessions.UpdatedLabels(labels, r.GetSet(), r.GetRemove())
	})
	if err != nil {
		return nil, err
	}
	if err := svc.cfg.Store.Save(e); err != nil {
		return nil, err
	}
	position.Record(ctx, e.Session.Journal().Last())
	return &bridgev1.UpdateLabelsResponse{Session: e.Session.Snapshot()}, nil
}
