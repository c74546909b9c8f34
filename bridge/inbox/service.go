// Package inbox serves the calls about pending callbacks: it lists, watches and reads them, and gives the CLI the answers
// of callers and participants.
//
// A Service has no lock; a Watch has. An answer continues when its caller leaves, without a goroutine that waits for the CLI.
package inbox

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/answer"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
)

// Sessions finds sessions for callers.
type Sessions interface {
	// Following returns a session whose callbacks the caller may answer.
	Following(ctx context.Context, id string) (*session.Session, error)
	// Visible returns the sessions that the caller may use, in no order.
	Visible(ctx context.Context) []*sessions.Entry
}

// Service lists callbacks and answers them. It is safe for concurrent use.
type Service struct {
	sessions   Sessions
	codec      *wire.Codec
	answers    *answer.Converter
	operations *idempotency.Runner
}

// New returns a service.
func New(s Sessions, c *wire.Codec, operations *idempotency.Runner) *Service {
	return &Service{sessions: s, codec: c, answers: answer.New(c), operations: operations}
}
