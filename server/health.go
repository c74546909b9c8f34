package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// healthService reports the health of the server, by the empty name, and of each of its services.
type healthService struct {
	*health.Server
	served *grpc.Server
}

// List implements healthv1.HealthServer. That of grpc-go refuses more than 100 services, and there is one for each
// namespace of the CLI's methods.
func (s healthService) List(
	ctx context.Context, _ *healthv1.HealthListRequest,
) (*healthv1.HealthListResponse, error) {
	state, err := s.Check(ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		return nil, err
	}
	all := map[string]*healthv1.HealthCheckResponse{"": state} // setHealth gives all services the same state
	for name := range s.served.GetServiceInfo() {
		all[name] = state
	}
	return &healthv1.HealthListResponse{Statuses: all}, nil
}
