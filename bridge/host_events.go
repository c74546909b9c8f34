package bridge

import (
	"context"
	"encoding/json"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// hostEvent is the notification by which the CLI tells its host what happened in it.
const hostEvent = "host.event"

// openHostEvents are the kinds that carry no credentials, as far as the CLI was seen to
// send them.
var openHostEvents = map[string]bool{"task_transition": true, "plugin_caches_invalidated": true}

// takeHostEvent takes one. What is said of a session that the bridge itself takes out of its
// runtime, or brings back, is the bridge's doing.
func (bind *binding) takeHostEvent(params []byte) {
	if !bind.b.hostEvents.Active() {
		return
	}
	var e struct{ Scope about }
	_ = json.Unmarshal(params, &e) // what names no session is about none
	s := bind.session([]byte(e.Scope.SessionID))
	bind.publish(bind.b.hostEvents, e.Scope.SessionID, params, s != nil && s.Internal())
}

// WatchHostEvents streams what CLI processes tell their host.
func (b *Bridge) WatchHostEvents(ctx context.Context, r *bridgev1.WatchHostEventsRequest, send func(*bridgev1.WatchHostEventsResponse) error) error {
	return b.watchNotices(ctx, b.hostEvents, r.GetSessionId(), r.GetHeartbeatInterval(), func(n *notice, lost int64) error {
		if n == nil {
			return send(&bridgev1.WatchHostEventsResponse{})
		}
		out := &bridgev1.WatchHostEventsResponse{RuntimeId: n.runtime, Lost: lost, Event: &cliv1.CallbackHostServiceEventRequest{}}
		if err := b.codec.FromJSON(n.params, out.Event); err != nil {
			return err
		}
		if n.bridge {
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
