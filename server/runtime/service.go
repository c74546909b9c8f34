// Package runtime serves copilot.bridge.v1.RuntimeService: it moves requests, replies and frames
// between gRPC and a Backend, and decides nothing. What a request must be, the backend
// checks; what its errors become, package server does.
package runtime

import (
	"context"

	"google.golang.org/grpc"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Backend does the work. Its methods are the rpcs of the service; they return the domain
// errors of package fault.
type Backend interface {
	GetServerInfo(context.Context, *bridgev1.GetServerInfoRequest) (*bridgev1.GetServerInfoResponse, error)
	ListRuntimes(context.Context, *bridgev1.ListRuntimesRequest) (*bridgev1.ListRuntimesResponse, error)
	Ping(context.Context, *bridgev1.PingRequest) (*bridgev1.PingResponse, error)
	GetAuthStatus(context.Context, *bridgev1.GetAuthStatusRequest) (*bridgev1.GetAuthStatusResponse, error)
	ListModels(context.Context, *bridgev1.ListModelsRequest) (*bridgev1.ListModelsResponse, error)
	WatchHostEvents(context.Context, *bridgev1.WatchHostEventsRequest, func(*bridgev1.WatchHostEventsResponse) error) error
	WatchTelemetry(context.Context, *bridgev1.WatchTelemetryRequest, func(*bridgev1.WatchTelemetryResponse) error) error
}

// Config is what a Service needs.
type Config struct {
	// Backend does the work; required.
	Backend Backend
}

// Service implements bridgev1.RuntimeServiceServer.
type Service struct {
	bridgev1.UnimplementedRuntimeServiceServer

	backend Backend
}

// New returns a service. It panics without a backend: that is a mistake of the program.
func New(c Config) *Service {
	if c.Backend == nil {
		panic("runtime: no backend")
	}
	return &Service{backend: c.Backend}
}

// Register makes r serve the service.
func (s *Service) Register(r grpc.ServiceRegistrar) { bridgev1.RegisterRuntimeServiceServer(r, s) }
