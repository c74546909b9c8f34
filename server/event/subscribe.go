package event

import (
	"google.golang.org/grpc"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server/codec"
)

// Subscribe implements bridgev1.EventServiceServer.
func (s *Service) Subscribe(req *bridgev1.SubscribeRequest, stream grpc.ServerStreamingServer[bridgev1.SubscribeResponse]) error {
	return s.backend.Subscribe(stream.Context(), req, codec.SubscribeSink(stream))
}
