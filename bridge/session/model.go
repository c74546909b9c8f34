package session

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/modelproxy"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
)

// newModels returns the proxy of the session's requests to models.
func (s *Session) newModels() *modelproxy.Proxy {
	return modelproxy.New(modelproxy.Config{
		Ask: func(ctx context.Context, p *callback.Pending) (json.RawMessage, error) {
			return s.callbacks.Ask(ctx, p)
		},
		Take: func(ctx context.Context, id, participant string) {
			// Where another participant has answered it, the proxy knows the owner.
			_, _ = s.callbacks.Resolve(ctx, id, callback.Giver{Participant: participant}, callback.Reply{Members: json.RawMessage(`{}`)})
		},
		Self: roster.Itself,
		Timeout: func() time.Duration {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.timeout
		},
		Position: s.journal.Last,
		Classify: Classify,
		Go:       func(f func(context.Context)) { s.host.Go(f) },
		Logger:   func() *slog.Logger { return s.host.Logger().With("session_id", s.id) },
	})
}

// Models returns the session's requests to models.
func (s *Session) Models() *modelproxy.Proxy { return s.models }
