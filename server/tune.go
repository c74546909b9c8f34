package server

import (
	"errors"
	"fmt"

	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

// Tuning is what of a server's configuration may change while it runs. All of it is to be
// given.
type Tuning struct {
	// TLS are the certificates of TCP ports; nil where there are none.
	TLS *TLS
	// Policy takes the place of the one in force; nil leaves that.
	Policy *policy.Policy
	// LogRequests adds requests to the log.
	LogRequests bool
	// Connections bounds connections over TCP; an age holds for those that come later.
	Connections Connections
}

// Tune puts other values into force. Where the certificates are bad, everything stays as it
// is. A server neither begins nor ceases to speak TLS, nor to have a policy.
func (s *Server) Tune(t Tuning) error {
	switch {
	case !t.Connections.valid():
		return errors.New("server: bounds of connections must not be negative")
	case (t.TLS == nil) != (s.certificates == nil):
		return errors.New("server: TLS is neither switched on nor off while the server runs")
	case t.Policy != nil && s.config.Policy == nil:
		return errors.New("server: a policy is not introduced while the server runs")
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
