package bridge

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/fleet"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// WatchTelemetry streams the copies of the CLI's telemetry.
func (b *Bridge) WatchTelemetry(ctx context.Context, r *bridgev1.WatchTelemetryRequest, send func(*bridgev1.WatchTelemetryResponse) error) error {
	return b.watchNotices(ctx, b.fleet.Telemetry(), r.GetSessionId(), r.GetHeartbeatInterval(), func(n *fleet.Notice, lost int64) error {
		if n == nil {
			return send(&bridgev1.WatchTelemetryResponse{})
		}
		out := &bridgev1.WatchTelemetryResponse{RuntimeId: n.RuntimeID, Lost: lost, Event: &cliv1.CallbackGitHubTelemetryServiceEventRequest{}}
		if err := b.codec.FromJSON(n.Params, out.Event); err != nil {
			return err
		}
		return send(out)
	})
}
