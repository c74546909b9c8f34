// Package attach serves participants: callers that bring tools and handlers to a session. An
// Attachment is one participant's stream in both directions.
//
// A session whose files or model requests callers provide asks for them while the CLI creates it, as the CLI may ask
// for a GitHub token. A stream therefore opens its session in the background: it begins with the frame opening as soon
// as its participant receives a callback (for such a session as soon as the session is placed), and carries callbacks
// and answers until started. At the end the last participant stays in the roster until the CLI has closed the session.
//
// The mutex of an Attachment guards its members below it: whether the stream has ended, and how
// the participant says goodbye. The goroutines of a stream (commands other than prompts, parts of model responses, the
// opening of the session) are started by spawn and joined by Stream; answers and leaving go on in
// the background of the shutdown.Coordinator.
package attach

import (
	"context"
	"log/slog"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/inbox"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/manage"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/prompt"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota/admission"
	"github.com/copilot-grpc/copilot-grpc/bridge/request"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	"github.com/copilot-grpc/copilot-grpc/bridge/stream"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// ExactSender sends prompts as calls of copilot.cli.v1 with exact fidelity do.
type ExactSender interface {
	// StartSend sends a prompt as prompt.Service.Start does. done also receives the journal position of the CLI's reply, which is
	// zero if an earlier request had it. Errors contain the CLI's own.
	StartSend(
		ctx context.Context, s *session.Session, r *cliv1.SessionServiceSendRequest, requestID string,
		done func(*cliv1.SessionServiceSendResponse, journal.Position, error),
	)
}

// Config has the parts that a service uses.
type Config struct {
	Sessions   *sessions.Store
	Opener     *manage.Sessions
	Parser     *request.Parser
	Sender     *prompt.Service
	Exactly    ExactSender
	Callbacks  *inbox.Service
	Admission  *admission.Controller
	Streams    *stream.Service
	Operations *idempotency.Runner
	Shutdown   *shutdown.Coordinator
	Codec      *wire.Codec
	Observer   *observe.Observer
	Audit      audit.Sink // not nil
	Log        *slog.Logger
}

// Service makes callers participants. It is safe for concurrent use.
type Service struct{ cfg Config }

// New returns a service.
func New(c Config) *Service { return &Service{cfg: c} }
