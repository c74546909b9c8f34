package bridge

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/fleet"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// openHostEvents are the kinds that carry no credentials, as far as the CLI was seen to
// send them.
var openHostEvents = map[string]bool{"task_transition": true, "plugin_caches_invalidated": true}

// WatchHostEvents streams what CLI processes tell their host.
func (b *Bridge) WatchHostEvents(ctx context.Context, r *bridgev1.WatchHostEventsRequest, send func(*bridgev1.WatchHostEventsResponse) error) error {
	return b.watchNotices(ctx, b.fleet.HostEvents(), r.GetSessionId(), r.GetHeartbeatInterval(), func(n *fleet.Notice, lost int64) error {
		if n == nil {
			return send(&bridgev1.WatchHostEventsResponse{})
		}
		out := &bridgev1.WatchHostEventsResponse{RuntimeId: n.RuntimeID, Lost: lost, Event: &cliv1.CallbackHostServiceEventRequest{}}
		if err := b.codec.FromJSON(n.Params, out.Event); err != nil {
			return err
		}
		if n.Bridge {
			out.Cause = bridgev1.EventCause_EVENT_CAUSE_BRIDGE
		}
		if !b.cfg.Sole {
			withhold(out)
		}
		return send(out)
	})
}

// withhold takes out of a host event what may be a credential.
func withhold(out *bridgev1.WatchHostEventsResponse) {
	e := out.GetEvent()
	if openHostEvents[e.GetKind()] {
		return
	}
	scope := &cliv1.HostEventScope{Type: e.GetScope().GetType(), SessionId: e.GetScope().SessionId}
	out.Event = &cliv1.CallbackHostServiceEventRequest{Scope: scope, Kind: e.GetKind()}
	out.PayloadWithheld = true
}
