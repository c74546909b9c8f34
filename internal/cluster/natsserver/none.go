//go:build !nats

package natsserver

import (
	"log/slog"

	"github.com/nats-io/nats.go"
)

// Built reports that this program has no NATS server.
const Built = false

// Server is never made.
type Server struct{ nats.InProcessConnProvider }

// Start returns ErrNotBuilt.
func Start(string, *slog.Logger) (*Server, error) { return nil, ErrNotBuilt }

// Stop does nothing.
func (*Server) Stop() error { return nil }
