package session

import (
	"context"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// SetModel implements bridgev1.SessionServiceServer.
func (s *Service) SetModel(ctx context.Context, req *bridgev1.SetModelRequest) (*bridgev1.SetModelResponse, error) {
	return s.backend.SetModel(ctx, req)
}

// Log implements bridgev1.SessionServiceServer.
func (s *Service) Log(ctx context.Context, req *bridgev1.LogRequest) (*bridgev1.LogResponse, error) {
	return s.backend.Log(ctx, req)
}

// UpdateProvider implements bridgev1.SessionServiceServer.
func (s *Service) UpdateProvider(ctx context.Context, req *bridgev1.UpdateProviderRequest) (*bridgev1.UpdateProviderResponse, error) {
	return s.backend.UpdateProvider(ctx, req)
}

// ProvideCredentials implements bridgev1.SessionServiceServer.
func (s *Service) ProvideCredentials(ctx context.Context, req *bridgev1.ProvideCredentialsRequest) (*bridgev1.ProvideCredentialsResponse, error) {
	return s.backend.ProvideCredentials(ctx, req)
}
