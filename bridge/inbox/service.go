// Package inbox serves the calls about pending callbacks: it lists, watches and reads them, and gives the CLI the answers
// of callers and participants.
//
// The hub, the handlers and the refresher of a Service have a lock each; no two of these are held together. The lock of a
// session, and then that of an entry's shares, may be held before them. A stream runs on its caller's goroutine. An answer
// continues when its caller leaves, without a goroutine that waits for the CLI. The refresher's goroutines are tasks of the
// shutdown.Coordinator. A timer for each handler in its grace time stops when the handler is replaced or displaced.
package inbox

import (
	"context"
	"log/slog"

	"github.com/copilot-grpc/copilot-grpc/bridge/broadcast"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
)

// Sessions finds sessions.
type Sessions interface {
	// All returns the sessions of all tenants, in no order.
	All() []*sessions.Entry
	// Following returns a session whose callbacks the caller may answer.
	Following(ctx context.Context, id string) (*session.Session, error)
	// Visible returns the sessions that the caller may use, in no order.
	Visible(ctx context.Context) []*sessions.Entry
}

// Service lists, watches and answers callbacks, and knows which callers handle them. It is safe for concurrent use.
type Service struct {
	sessions   Sessions
	codec      *wire.Codec
	operations *idempotency.Runner
	shutdown   *shutdown.Coordinator
	log        *slog.Logger
	hub        *broadcast.Hub[change]
	handlers   handlers
	refresher  refresher
}

// New returns a service. Its streams end when c drains.
func New(
	s Sessions, codec *wire.Codec, operations *idempotency.Runner, c *shutdown.Coordinator, log *slog.Logger,
) *Service {
	return &Service{
		sessions: s, codec: codec, operations: operations, shutdown: c, log: log,
		hub: broadcast.New[change](queueSize, broadcast.Reset),
		refresher: refresher{
			run: c.Go, log: log,
			refresh: func(ctx context.Context, e *sessions.Entry) error { return e.Session.Participants().Refresh(ctx) },
		},
	}
}
