package rpc

import (
	"context"

	"google.golang.org/grpc"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// CLIBackend calls the methods of the CLI.
type CLIBackend interface {
	RawBackend
	SurfaceBackend
}

// RawBackend carries out the calls of RawService.
type RawBackend interface {
	Invoke(context.Context, *bridgev1.InvokeRequest) (*bridgev1.InvokeResponse, error)
	RunShell(ctx context.Context, req *bridgev1.RunShellRequest, emit func(*bridgev1.RunShellResponse) error) error
}

type rawService struct {
	bridgev1.UnsafeRawServiceServer // all rpcs are methods here or of the backend
	RawBackend
}

// NewRaw returns RawService for a backend.
func NewRaw(b RawBackend) Service { return &rawService{RawBackend: b} }

func (s *rawService) Register(r grpc.ServiceRegistrar) { bridgev1.RegisterRawServiceServer(r, s) }

func (s *rawService) RunShell(
	req *bridgev1.RunShellRequest, stream grpc.ServerStreamingServer[bridgev1.RunShellResponse],
) error {
	return s.RawBackend.RunShell(stream.Context(), req, stream.Send)
}
