// Package raw serves copilot.bridge.v1.RawService: it moves requests, replies and frames
// between gRPC and a Backend, and decides nothing. What a request must be, the backend
// checks; what its errors become, package server does.
package raw

import (
	"context"

	"google.golang.org/grpc"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Backend does the work. Its methods are the rpcs of the service; they return the domain
// errors of package fault.
type Backend interface {
	Invoke(context.Context, *bridgev1.InvokeRequest) (*bridgev1.InvokeResponse, error)
	RunShell(ctx context.Context, req *bridgev1.RunShellRequest, emit func(*bridgev1.RunShellResponse) error) error
}

// Config is what a Service needs.
type Config struct {
	// Backend does the work; required.
	Backend Backend
}

// Service implements bridgev1.RawServiceServer.
type Service struct {
	bridgev1.UnimplementedRawServiceServer

	backend Backend
}

// New returns a service. It panics without a backend: that is a mistake of the program.
func New(c Config) *Service {
	if c.Backend == nil {
		panic("raw: no backend")
	}
	return &Service{backend: c.Backend}
}

// Register makes r serve the service.
func (s *Service) Register(r grpc.ServiceRegistrar) { bridgev1.RegisterRawServiceServer(r, s) }

// Invoke implements bridgev1.RawServiceServer.
func (s *Service) Invoke(ctx context.Context, req *bridgev1.InvokeRequest) (*bridgev1.InvokeResponse, error) {
	return s.backend.Invoke(ctx, req)
}

// RunShell implements bridgev1.RawServiceServer.
func (s *Service) RunShell(req *bridgev1.RunShellRequest, stream grpc.ServerStreamingServer[bridgev1.RunShellResponse]) error {
	return s.backend.RunShell(stream.Context(), req, stream.Send)
}
