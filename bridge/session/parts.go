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

func newModels(s *Session) *modelproxy.Proxy {
	return modelproxy.New(modelproxy.Config{
		Ask: func(ctx context.Context, p *callback.Pending) (json.RawMessage, error) {
			return s.callbacks.ask(ctx, p)
		},
		Take: func(ctx context.Context, id, participant string) {
			// Resolve fails if another participant has answered; the proxy knows that participant then.
			by, reply := callback.Responder{Participant: participant}, callback.Reply{Members: json.RawMessage(`{}`)}
			s.callbacks.Resolve(ctx, id, by, reply, func(journal.Position, error) {})
		},
		Self: roster.Itself,
		Timeout: func() time.Duration {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.loader.timeout
		},
		Position: s.journal.Last,
		Classify: Classify,
		Go:       s.host.Go,
		Logger:   func() *slog.Logger { return s.host.Logger().With("session_id", s.id) },
	})
}

// Loader returns the part that loads and unloads the session.
func (s *Session) Loader() *Loader { return s.loader }

// Callbacks returns the session's callbacks.
func (s *Session) Callbacks() *Callbacks { return s.callbacks }

// Models returns the part that carries out the session's model requests.
func (s *Session) Models() *modelproxy.Proxy { return s.models }

// Prompts returns the queue of the prompts whose turns have not ended.
func (s *Session) Prompts() *Prompts { return s.prompts }

// Participants returns the participants of the session.
func (s *Session) Participants() *Participants { return s.participants }

// Turns returns the session's turns.
func (s *Session) Turns() *Turns { return s.turns }

// Watchdog returns the part that ends turns without progress.
func (s *Session) Watchdog() *Watchdog { return s.watchdog }

// Settings returns the session's configuration.
func (s *Session) Settings() *Settings { return s.settings }

// Sender returns the part that sends messages.
func (s *Session) Sender() *Sender { return s.sender }
