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
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/request"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	"github.com/copilot-grpc/copilot-grpc/bridge/stream"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// Sessions finds sessions for callers.
type Sessions interface {
	stream.Sessions
	// Find returns a session that the caller may know of, in any state.
	Find(ctx context.Context, id string) (*session.Session, error)
}

// Opener opens sessions with a participant. at is the path of the request, with its dot.
type Opener interface {
	Create(
		ctx context.Context, r *bridgev1.CreateSessionRequest, at string, join *session.Joining,
	) (*session.Session, session.Joined, error)
	Resume(
		ctx context.Context, r *bridgev1.ResumeSessionRequest, at string, join *session.Joining,
	) (*session.Session, session.Joined, error)
}

// Sender sends prompts.
type Sender interface {
	// Start sends a prompt to a session that the caller may use, without waiting for anything; with nil, to the session
	// that the request names, which it may wait for. done receives the answer on another goroutine, which it may block,
	// also after the end of ctx.
	Start(ctx context.Context, s *session.Session, r *bridgev1.SendRequest, done func(*bridgev1.SendResponse, error))
}

// ExactSender sends prompts as calls of copilot.cli.v1 with exact fidelity do.
type ExactSender interface {
	// StartSend sends a prompt as Sender.Start does. done also receives the journal position of the CLI's reply, which is
	// zero if an earlier request had it. Errors contain the CLI's own.
	StartSend(
		ctx context.Context, s *session.Session, r *cliv1.SessionServiceSendRequest, requestID string,
		done func(*cliv1.SessionServiceSendResponse, journal.Position, error),
	)
}

// Callbacks gives the CLI what participants answer.
type Callbacks interface {
	// Answer gives the CLI a participant's answer to a callback, without waiting for the CLI. done receives the
	// position of the answer or the error, then or later, also after the end of ctx. It must not block.
	Answer(
		ctx context.Context, s *session.Session, a *bridgev1.CallbackAnswer, participant string, exact bool,
		done func(journal.Position, error),
	)
	// Respond gives the CLI a part of a participant's response to a model request.
	Respond(ctx context.Context, s *session.Session, r *bridgev1.ModelResponse, participant string) error
}

// Admission limits the participants of a tenant.
type Admission interface {
	// Participant reserves room for one more participant until release is called.
	Participant(tenant string) (release func(), err error)
}

// Service makes callers participants. It is safe for concurrent use.
type Service struct {
	sessions   Sessions
	opener     Opener
	parser     *request.Parser
	sender     Sender
	exactly    ExactSender
	callbacks  Callbacks
	admission  Admission
	streams    *stream.Service
	operations *idempotency.Runner
	shutdown   *shutdown.Coordinator
	codec      *wire.Codec
	observer   *observe.Observer
	audit      audit.Sink
	log        *slog.Logger
}

// Config has the parts that a service uses.
type Config struct {
	Sessions   Sessions
	Opener     Opener
	Parser     *request.Parser
	Sender     Sender
	Exactly    ExactSender
	Callbacks  Callbacks
	Admission  Admission
	Streams    *stream.Service
	Operations *idempotency.Runner
	Shutdown   *shutdown.Coordinator
	Codec      *wire.Codec
	Observer   *observe.Observer
	Audit      audit.Sink // not nil
	Log        *slog.Logger
}

// New returns a service.
func New(c Config) *Service {
	return &Service{
		sessions: c.Sessions, opener: c.Opener, parser: c.Parser, sender: c.Sender, exactly: c.Exactly,
		callbacks: c.Callbacks, admission: c.Admission, streams: c.Streams, operations: c.Operations,
		shutdown: c.Shutdown, codec: c.Codec, observer: c.Observer, audit: c.Audit, log: c.Log,
	}
}
