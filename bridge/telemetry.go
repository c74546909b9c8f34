package bridge

import (
	"context"
	"encoding/json"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// telemetryEvent is the notification that a copy of an event of telemetry is.
const telemetryEvent = "gitHubTelemetry.event"

// takeTelemetry takes one.
func (bind *binding) takeTelemetry(params []byte) {
	if !bind.b.telemetry.Active() {
		return
	}
	var a about
	_ = json.Unmarshal(params, &a) // what names no session is about none
	bind.publish(bind.b.telemetry, a.SessionID, params, false)
}

// WatchTelemetry streams the copies of the CLI's telemetry.
func (b *Bridge) WatchTelemetry(ctx context.Context, r *bridgev1.WatchTelemetryRequest, send func(*bridgev1.WatchTelemetryResponse) error) error {
	return b.watchNotices(ctx, b.telemetry, r.GetSessionId(), r.GetHeartbeatInterval(), func(n *notice, lost int64) error {
		if n == nil {
			return send(&bridgev1.WatchTelemetryResponse{})
		}
		out := &bridgev1.WatchTelemetryResponse{RuntimeId: n.runtime, Lost: lost, Event: &cliv1.CallbackGitHubTelemetryServiceEventRequest{}}
		if err := b.codec.FromJSON(n.params, out.Event); err != nil {
			return err
		}
		return send(out)
	})
}
