package session

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
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
			_, _ = s.Resolve(ctx, id, callback.Giver{Participant: participant}, callback.Reply{Members: json.RawMessage(`{}`)})
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

// AskModel is Ask for the parts of a request to a model, which is answered in calls of the
// runtime's.
func (s *Session) AskModel(ctx context.Context, rt Runtime, id, method string, params json.RawMessage) (json.RawMessage, error) {
	switch method {
	case callback.ModelRequestStart:
		return s.models.Start(ctx, rt, id, params)
	case callback.ModelRequestChunk:
		return s.models.Chunk(ctx, id, params)
	}
	return s.Ask(ctx, id, method, params)
}

// HasModel reports whether a request to a model is the session's, and still open.
func (s *Session) HasModel(request string) bool { return s.models.Has(request) }

// RespondModel gives the CLI a part of a model's response.
func (s *Session) RespondModel(ctx context.Context, participant string, part modelproxy.Part) (journal.Position, error) {
	return s.models.Respond(ctx, participant, part)
}
