package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
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
	names := []string{""}
	for name := range s.served.GetServiceInfo() {
		names = append(names, name)
	}
	list := &healthv1.HealthListResponse{Statuses: map[string]*healthv1.HealthCheckResponse{}}
	for _, name := range names {
		state, err := s.Check(ctx, &healthv1.HealthCheckRequest{Service: name})
		switch {
		case err == nil:
			list.Statuses[name] = state
		case status.Code(err) != codes.NotFound:
			return nil, err
		}
	}
	return list, nil
}
