// Package event serves copilot.bridge.v1.EventService: it moves requests, replies and frames
// between gRPC and a Backend, and decides nothing. What a request must be, the backend
// checks; what its errors become, package server does.
package event

import (
	"context"

	"google.golang.org/grpc"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/frame"
)

// Backend does the work. Its methods are the rpcs of the service; they return the domain
// errors of package fault.
type Backend interface {
	// Subscribe emits the frames of the stream.
	Subscribe(ctx context.Context, req *bridgev1.SubscribeRequest, emit frame.Sink) error
	WatchSessions(ctx context.Context, req *bridgev1.WatchSessionsRequest, emit func(*bridgev1.WatchSessionsResponse) error) error
}

// Config is what a Service needs.
type Config struct {
	// Backend does the work; required.
	Backend Backend
}

// Service implements bridgev1.EventServiceServer.
type Service struct {
	bridgev1.UnimplementedEventServiceServer

	backend Backend
}

// New returns a service. It panics without a backend: that is a mistake of the program.
func New(c Config) *Service {
	if c.Backend == nil {
		panic("event: no backend")
	}
	return &Service{backend: c.Backend}
}

// Register makes r serve the service.
func (s *Service) Register(r grpc.ServiceRegistrar) { bridgev1.RegisterEventServiceServer(r, s) }
