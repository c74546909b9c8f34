package session

import (
	"context"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// CreateSession implements bridgev1.SessionServiceServer.
func (s *Service) CreateSession(ctx context.Context, req *bridgev1.CreateSessionRequest) (*bridgev1.CreateSessionResponse, error) {
	return s.backend.CreateSession(ctx, req)
}

// ResumeSession implements bridgev1.SessionServiceServer.
func (s *Service) ResumeSession(ctx context.Context, req *bridgev1.ResumeSessionRequest) (*bridgev1.ResumeSessionResponse, error) {
	return s.backend.ResumeSession(ctx, req)
}

// GetSession implements bridgev1.SessionServiceServer.
func (s *Service) GetSession(ctx context.Context, req *bridgev1.GetSessionRequest) (*bridgev1.GetSessionResponse, error) {
	return s.backend.GetSession(ctx, req)
}

// ListSessions implements bridgev1.SessionServiceServer.
func (s *Service) ListSessions(ctx context.Context, req *bridgev1.ListSessionsRequest) (*bridgev1.ListSessionsResponse, error) {
	return s.backend.ListSessions(ctx, req)
}

// DeleteSession implements bridgev1.SessionServiceServer.
func (s *Service) DeleteSession(ctx context.Context, req *bridgev1.DeleteSessionRequest) (*bridgev1.DeleteSessionResponse, error) {
	return s.backend.DeleteSession(ctx, req)
}

// GetLastSession implements bridgev1.SessionServiceServer.
func (s *Service) GetLastSession(ctx context.Context, req *bridgev1.GetLastSessionRequest) (*bridgev1.GetLastSessionResponse, error) {
	return s.backend.GetLastSession(ctx, req)
}

// DisconnectSession implements bridgev1.SessionServiceServer.
func (s *Service) DisconnectSession(ctx context.Context, req *bridgev1.DisconnectSessionRequest) (*bridgev1.DisconnectSessionResponse, error) {
	return s.backend.DisconnectSession(ctx, req)
}

// GetForegroundSession implements bridgev1.SessionServiceServer.
func (s *Service) GetForegroundSession(ctx context.Context, req *bridgev1.GetForegroundSessionRequest) (*bridgev1.GetForegroundSessionResponse, error) {
	return s.backend.GetForegroundSession(ctx, req)
}

// SetForegroundSession implements bridgev1.SessionServiceServer.
func (s *Service) SetForegroundSession(ctx context.Context, req *bridgev1.SetForegroundSessionRequest) (*bridgev1.SetForegroundSessionResponse, error) {
	return s.backend.SetForegroundSession(ctx, req)
}
