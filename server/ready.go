package server

import (
	"context"
	"time"

	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
)

// readyEvery is the interval at which Config.Ready is called.
const readyEvery = 250 * time.Millisecond

// Serving returns why a TCP address takes no calls now; nil if all do. It is not nil only with Config.XDS.
func (s *Server) Serving() error { return s.serving.err() }

// ready returns why the server should get no calls now.
func (s *Server) ready() error {
	if err := s.Serving(); err != nil || s.config.Ready == nil {
		return err
	}
	return s.config.Ready()
}

// followReady updates the health service until ctx ends.
func (s *Server) followReady(ctx context.Context) {
	if s.config.Ready == nil && !s.config.XDS {
		s.setHealth(healthv1.HealthCheckResponse_SERVING)
		<-ctx.Done()
		return
	}
	ticker := time.NewTicker(readyEvery)
	defer ticker.Stop()
	for said := healthv1.HealthCheckResponse_UNKNOWN; ; {
		now := healthv1.HealthCheckResponse_SERVING
		if s.ready() != nil {
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
