package event

import (
	"google.golang.org/grpc"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// WatchSessions implements bridgev1.EventServiceServer.
func (s *Service) WatchSessions(req *bridgev1.WatchSessionsRequest, stream grpc.ServerStreamingServer[bridgev1.WatchSessionsResponse]) error {
	return s.backend.WatchSessions(stream.Context(), req, stream.Send)
}
