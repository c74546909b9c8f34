package runtime

import (
	"google.golang.org/grpc"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// WatchTelemetry implements bridgev1.RuntimeServiceServer.
func (s *Service) WatchTelemetry(req *bridgev1.WatchTelemetryRequest, stream grpc.ServerStreamingServer[bridgev1.WatchTelemetryResponse]) error {
	return s.backend.WatchTelemetry(stream.Context(), req, stream.Send)
}
