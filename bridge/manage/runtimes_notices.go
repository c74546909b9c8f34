package manage

import (
	"context"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/broadcast"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet"
	"github.com/copilot-grpc/copilot-grpc/bridge/stream"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// WatchTelemetry streams the copies of the CLI's telemetry.
func (svc *Runtimes) WatchTelemetry(
	ctx context.Context, r *bridgev1.WatchTelemetryRequest, send func(*bridgev1.WatchTelemetryResponse) error,
) error {
	return svc.watchNotices(ctx, svc.cfg.Fleet.Telemetry(), r, func(n *fleet.Notice, lost int64) error {
		if n == nil {
			return send(&bridgev1.WatchTelemetryResponse{})
		}
		event := &cliv1.CallbackGitHubTelemetryServiceEventRequest{}
		if err := svc.cfg.Codec.FromJSON(n.Params, event); err != nil {
			return err
		}
		return send(&bridgev1.WatchTelemetryResponse{RuntimeId: n.RuntimeID, Lost: lost, Event: event})
	})
}

// openHostEvents are the kinds that carry no credentials in any message of the CLI that was seen.
var openHostEvents = map[string]bool{"task_transition": true, "plugin_caches_invalidated": true}

// WatchHostEvents streams the events that CLI processes report to their host.
func (svc *Runtimes) WatchHostEvents(
	ctx context.Context, r *bridgev1.WatchHostEventsRequest, send func(*bridgev1.WatchHostEventsResponse) error,
) error {
	return svc.watchNotices(ctx, svc.cfg.Fleet.HostEvents(), r, func(n *fleet.Notice, lost int64) error {
		if n == nil {
			return send(&bridgev1.WatchHostEventsResponse{})
		}
		event := &cliv1.CallbackHostServiceEventRequest{}
		if err := svc.cfg.Codec.FromJSON(n.Params, event); err != nil {
			return err
		}
		out := &bridgev1.WatchHostEventsResponse{RuntimeId: n.RuntimeID, Lost: lost, Event: event}
		if n.Bridge {
			out.Cause = bridgev1.EventCause_EVENT_CAUSE_BRIDGE
		}
		if !svc.cfg.SingleClient {
			withhold(out)
		}
		return send(out)
	})
}

// withhold removes from a host event the members that may be a credential.
func withhold(out *bridgev1.WatchHostEventsResponse) {
	e := out.GetEvent()
	if openHostEvents[e.GetKind()] {
		return
	}
	scope := &cliv1.HostEventScope{ScopeType: e.GetScope().GetScopeType(), SessionId: e.GetScope().SessionId}
	out.Event = &cliv1.CallbackHostServiceEventRequest{Scope: scope, Kind: e.GetKind()}
	out.PayloadWithheld = true
}

// noticesRequest is a request for a stream of notices.
type noticesRequest interface {
	GetSessionId() string
	GetHeartbeatInterval() *durationpb.Duration
}

// watchNotices sends the caller the notices of its tenant's runtimes about a session, or all,
// from now on, each with the number of notices dropped before it. It sends nil as a heartbeat:
// at first, and in pauses.
func (svc *Runtimes) watchNotices(
	ctx context.Context, hub *broadcast.Hub[fleet.Notice], r noticesRequest, send func(n *fleet.Notice, lost int64) error,
) error {
	every, err := stream.Heartbeat(r.GetHeartbeatInterval(), "heartbeat_interval")
	if err != nil {
		return err
	}
	id := r.GetSessionId()
	if id != "" {
		if err := tenancy.CheckID(id, "session_id"); err != nil {
			return err
		}
	}
	tenant := caller.From(ctx).Tenant
	w := hub.Subscribe(func(n fleet.Notice) bool { return n.Tenant == tenant && (id == "" || n.SessionID == id) })
	defer w.Close()
	beat := func() error { return send(nil, 0) }
	if err := beat(); err != nil {
		return err
	}
	return stream.Loop(ctx, svc.cfg.Shutdown, every, w.Ready(), beat, func() error {
		batch := w.Take()
		for i := range batch.Values {
			if err := send(&batch.Values[i], batch.Dropped); err != nil {
				return err
			}
			batch.Dropped = 0
		}
		return nil
	})
}
