package runtime

import (
	"context"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// GetAuthStatus implements bridgev1.RuntimeServiceServer.
func (s *Service) GetAuthStatus(ctx context.Context, req *bridgev1.GetAuthStatusRequest) (*bridgev1.GetAuthStatusResponse, error) {
	return s.backend.GetAuthStatus(ctx, req)
}

// ListModels implements bridgev1.RuntimeServiceServer.
func (s *Service) ListModels(ctx context.Context, req *bridgev1.ListModelsRequest) (*bridgev1.ListModelsResponse, error) {
	return s.backend.ListModels(ctx, req)
}
