package session

import (
	"context"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// ShareSession implements bridgev1.SessionServiceServer.
func (s *Service) ShareSession(ctx context.Context, req *bridgev1.ShareSessionRequest) (*bridgev1.ShareSessionResponse, error) {
	return s.backend.ShareSession(ctx, req)
}

// UnshareSession implements bridgev1.SessionServiceServer.
func (s *Service) UnshareSession(ctx context.Context, req *bridgev1.UnshareSessionRequest) (*bridgev1.UnshareSessionResponse, error) {
	return s.backend.UnshareSession(ctx, req)
}

// ListShareOffers implements bridgev1.SessionServiceServer.
func (s *Service) ListShareOffers(ctx context.Context, req *bridgev1.ListShareOffersRequest) (*bridgev1.ListShareOffersResponse, error) {
	return s.backend.ListShareOffers(ctx, req)
}

// AcceptShare implements bridgev1.SessionServiceServer.
func (s *Service) AcceptShare(ctx context.Context, req *bridgev1.AcceptShareRequest) (*bridgev1.AcceptShareResponse, error) {
	return s.backend.AcceptShare(ctx, req)
}

// DeclineShare implements bridgev1.SessionServiceServer.
func (s *Service) DeclineShare(ctx context.Context, req *bridgev1.DeclineShareRequest) (*bridgev1.DeclineShareResponse, error) {
	return s.backend.DeclineShare(ctx, req)
}
