package rpc

import (
	"context"

	"google.golang.org/grpc"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// RawBackend does the work of RawService.
type RawBackend interface {
	Invoke(context.Context, *bridgev1.InvokeRequest) (*bridgev1.InvokeResponse, error)
	RunShell(ctx context.Context, req *bridgev1.RunShellRequest, emit func(*bridgev1.RunShellResponse) error) error
}

// rawService implements bridgev1.RawServiceServer.
type rawService struct {
	bridgev1.UnsafeRawServiceServer // every rpc has a method here or in the backend
	RawBackend
}

// NewRaw returns RawService.
func NewRaw(b RawBackend) Service { return &rawService{RawBackend: b} }

// Register implements Service.
func (s *rawService) Register(r grpc.ServiceRegistrar) { bridgev1.RegisterRawServiceServer(r, s) }

// RunShell implements bridgev1.RawServiceServer.
func (s *rawService) RunShell(
	req *bridgev1.RunShellRequest, stream grpc.ServerStreamingServer[bridgev1.RunShellResponse],
) error {
	return s.RawBackend.RunShell(stream.Context(), req, stream.Send)
}
