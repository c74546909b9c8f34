package server

import (
	"context"
	"time"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// readyEvery is how often Config.Ready is asked.
const readyEvery = 250 * time.Millisecond

// followReady has health say whether the server is ready, until ctx ends.
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
