package runtime

import (
	"google.golang.org/grpc"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// WatchHostEvents implements bridgev1.RuntimeServiceServer.
func (s *Service) WatchHostEvents(req *bridgev1.WatchHostEventsRequest, stream grpc.ServerStreamingServer[bridgev1.WatchHostEventsResponse]) error {
	return s.backend.WatchHostEvents(stream.Context(), req, stream.Send)
}
