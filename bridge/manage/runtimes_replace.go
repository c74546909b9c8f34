package manage

import (
	"context"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const (
	defaultRecycleGrace = 30 * time.Second
	maxRecycleGrace     = time.Hour
)

// DrainRuntime begins or ends the drain of a runtime.
func (svc *Runtimes) DrainRuntime(
	ctx context.Context, r *bridgev1.DrainRuntimeRequest,
) (*bridgev1.DrainRuntimeResponse, error) {
	action := "runtime.drain"
	if r.GetUndo() {
		action = "runtime.undrain"
	}
	rt, err := svc.find(ctx, r.GetRuntimeId())
	if err == nil {
		err = rt.Drain(!r.GetUndo())
	}
	svc.record(ctx, action, r.GetRuntimeId(), err)
	if err != nil {
		return nil, err
	}
	return &bridgev1.DrainRuntimeResponse{Runtime: described(ctx, rt)}, nil
}

// RecycleRuntime replaces a runtime and returns when it has ended.
func (svc *Runtimes) RecycleRuntime(
	ctx context.Context, r *bridgev1.RecycleRuntimeRequest,
) (*bridgev1.RecycleRuntimeResponse, error) {
	grace, err := fields.Duration(r.GetGracePeriod(), "grace_period", 0, maxRecycleGrace)
	if err != nil {
		return nil, err
	}
	if r.GetGracePeriod() == nil {
		grace = defaultRecycleGrace
	}
	interrupted := 0
	rt, err := svc.find(ctx, r.GetRuntimeId())
	if err == nil {
		interrupted, err = rt.Recycle(ctx, grace)
	}
	svc.record(ctx, "runtime.recycle", r.GetRuntimeId(), err)
	if err != nil {
		return nil, err
	}
	return &bridgev1.RecycleRuntimeResponse{
		Runtime: described(ctx, rt), InterruptedSessions: int32(interrupted), //nolint:gosec // sessions of one process
	}, nil
}

// find returns the runtime of an id that the caller sees.
func (svc *Runtimes) find(ctx context.Context, id string) (*fleet.Runtime, error) {
	for _, rt := range svc.cfg.Fleet.Visible(caller.From(ctx)) {
		if rt.ID() == id {
			return rt, nil
		}
	}
	return nil, fault.New(fault.RuntimeNotFound, "no runtime %q", id).WithField("runtime_id").With("runtime_id", id)
}

// record writes to the audit log.
func (svc *Runtimes) record(ctx context.Context, action, id string, err error) {
	e := audit.Entry{Action: action, Outcome: audit.Done, Subject: id}
	if err != nil {
		e.Outcome, e.Reason = audit.Failed, fault.Name(fault.ReasonOf(err))
	}
	svc.cfg.Audit.Record(ctx, e)
}
