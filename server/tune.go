package server

import (
	"errors"
	"fmt"

	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

// Tuning has the settings that may change while a server runs. All fields must be set.
type Tuning struct {
	// TLS are the certificates of TCP ports; nil if there are none.
	TLS *TLS
	// Policy replaces the current policy; nil keeps it.
	Policy *policy.Policy
	// LogRequests adds requests to the log.
	LogRequests bool
	// Connections bounds connections over TCP; a new age applies to later ones.
	Connections Connections
}

// Tune applies new settings. If the certificates are invalid, nothing changes. TLS and the policy cannot be added or
// removed.
func (s *Server) Tune(t Tuning) error {
	switch {
	case !t.Connections.valid():
		return errors.New("server: bounds of connections must not be negative")
	case (t.TLS == nil) != (s.certificates == nil):
		return errors.New("server: TLS cannot be enabled or disabled while the server runs: restart it")
	case t.Policy != nil && s.config.Policy == nil:
		return errors.New("server: a policy cannot be added while the server runs: restart it")
	case t.TLS != nil:
		if err := s.certificates.use(t.TLS); err != nil {
			return fmt.Errorf("server: TLS: %w", err)
		}
	}
	if t.Policy != nil {
		s.config.Policy.Use(t.Policy)
	}
	s.connections.tune(t.Connections)
	s.reporter.requests.Store(t.LogRequests)
	return nil
}
