package runtime

import (
	"context"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// GetServerInfo implements bridgev1.RuntimeServiceServer.
func (s *Service) GetServerInfo(ctx context.Context, req *bridgev1.GetServerInfoRequest) (*bridgev1.GetServerInfoResponse, error) {
	return s.backend.GetServerInfo(ctx, req)
}

// ListRuntimes implements bridgev1.RuntimeServiceServer.
func (s *Service) ListRuntimes(ctx context.Context, req *bridgev1.ListRuntimesRequest) (*bridgev1.ListRuntimesResponse, error) {
	return s.backend.ListRuntimes(ctx, req)
}

// Ping implements bridgev1.RuntimeServiceServer.
func (s *Service) Ping(ctx context.Context, req *bridgev1.PingRequest) (*bridgev1.PingResponse, error) {
	return s.backend.Ping(ctx, req)
}
