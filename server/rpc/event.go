package rpc

import (
	"context"

	"google.golang.org/grpc"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server/codec"
)

// EventBackend streams and lists the events of sessions.
type EventBackend interface {
	HistoryBackend
	// Subscribe emits the frames of the stream.
	Subscribe(ctx context.Context, req *bridgev1.SubscribeRequest, emit frame.Sink) error
}

// WatchBackend implements EventService.WatchSessions.
type WatchBackend interface {
	// WatchSessions calls open when it has registered the watch, and then emit.
	WatchSessions(
		ctx context.Context, req *bridgev1.WatchSessionsRequest, open func() error,
		emit func(*bridgev1.WatchSessionsResponse) error,
	) error
}

type eventService struct {
	bridgev1.UnsafeEventServiceServer // all rpcs are methods here
	events                            EventBackend
	watch                             WatchBackend
}

// NewEvent returns EventService.
func NewEvent(events EventBackend, watch WatchBackend) Service {
	return &eventService{events: events, watch: watch}
}

func (s *eventService) Register(r grpc.ServiceRegistrar) { bridgev1.RegisterEventServiceServer(r, s) }

func (s *eventService) Subscribe(
	req *bridgev1.SubscribeRequest, stream grpc.ServerStreamingServer[bridgev1.SubscribeResponse],
) error {
	return s.events.Subscribe(stream.Context(), req, codec.SubscribeSink(stream))
}

func (s *eventService) WatchSessions(
	req *bridgev1.WatchSessionsRequest, stream grpc.ServerStreamingServer[bridgev1.WatchSessionsResponse],
) error {
	return s.watch.WatchSessions(stream.Context(), req, func() error { return stream.SendHeader(nil) }, stream.Send)
}
