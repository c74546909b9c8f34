package callback

import (
	"context"

	"google.golang.org/grpc"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// ListPending implements bridgev1.CallbackServiceServer.
func (s *Service) ListPending(ctx context.Context, req *bridgev1.ListPendingRequest) (*bridgev1.ListPendingResponse, error) {
	return s.backend.ListPending(ctx, req)
}

// RespondToModelRequest implements bridgev1.CallbackServiceServer.
func (s *Service) RespondToModelRequest(ctx context.Context, req *bridgev1.RespondToModelRequestRequest) (*bridgev1.RespondToModelRequestResponse, error) {
	return s.backend.RespondToModelRequest(ctx, req)
}

// Resolve implements bridgev1.CallbackServiceServer.
func (s *Service) Resolve(ctx context.Context, req *bridgev1.ResolveRequest) (*bridgev1.ResolveResponse, error) {
	return s.backend.Resolve(ctx, req)
}

// ReadCallback implements bridgev1.CallbackServiceServer.
func (s *Service) ReadCallback(req *bridgev1.ReadCallbackRequest, stream grpc.ServerStreamingServer[bridgev1.ReadCallbackResponse]) error {
	return s.backend.ReadCallback(stream.Context(), req, stream.Send)
}
