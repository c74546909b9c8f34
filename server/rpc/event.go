package rpc

import (
	"context"

	"google.golang.org/grpc"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server/codec"
)

// EventBackend carries out the calls of EventService.
type EventBackend interface {
	// Subscribe emits the frames of the stream.
	Subscribe(ctx context.Context, req *bridgev1.SubscribeRequest, emit frame.Sink) error
	WatchSessions(
		ctx context.Context, req *bridgev1.WatchSessionsRequest, emit func(*bridgev1.WatchSessionsResponse) error,
	) error
}

type eventService struct {
	bridgev1.UnsafeEventServiceServer // all rpcs are methods here or of the backend
	EventBackend
}

// NewEvent returns EventService for a backend.
func NewEvent(b EventBackend) Service { return &eventService{EventBackend: b} }

func (s *eventService) Register(r grpc.ServiceRegistrar) { bridgev1.RegisterEventServiceServer(r, s) }

func (s *eventService) Subscribe(
	req *bridgev1.SubscribeRequest, stream grpc.ServerStreamingServer[bridgev1.SubscribeResponse],
) error {
	return s.EventBackend.Subscribe(stream.Context(), req, codec.SubscribeSink(stream))
}

func (s *eventService) WatchSessions(
	req *bridgev1.WatchSessionsRequest, stream grpc.ServerStreamingServer[bridgev1.WatchSessionsResponse],
) error {
	return s.EventBackend.WatchSessions(stream.Context(), req, stream.Send)
}
