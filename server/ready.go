package server

import (
	"context"
	"time"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// readyEvery is the interval at which Config.Ready is called.
const readyEvery = 250 * time.Millisecond

// followReady updates the health service until ctx ends.
func (s *Server) followReady(ctx context.Context) {
	if s.config.Ready == nil {
		s.setHealth(healthv1.HealthCheckResponse_SERVING)
		<-ctx.Done()
		return
	}
	ticker := time.NewTicker(readyEvery)
	defer ticker.Stop()
	for said := healthv1.HealthCheckResponse_UNKNOWN; ; {
		now := healthv1.HealthCheckResponse_SERVING
		if s.config.Ready() != nil {
			now = healthv1.HealthCheckResponse_NOT_SERVING
		}
		if now != said {
			s.setHealth(now)
			said = now
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
