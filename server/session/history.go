package session

import (
	"context"

	"google.golang.org/grpc"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// ListEvents implements bridgev1.SessionServiceServer.
func (s *Service) ListEvents(ctx context.Context, req *bridgev1.ListEventsRequest) (*bridgev1.ListEventsResponse, error) {
	return s.backend.ListEvents(ctx, req)
}

// ReadEvent implements bridgev1.SessionServiceServer.
func (s *Service) ReadEvent(req *bridgev1.ReadEventRequest, stream grpc.ServerStreamingServer[bridgev1.ReadEventResponse]) error {
	return s.backend.ReadEvent(stream.Context(), req, stream.Send)
}
