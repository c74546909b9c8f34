// Package attach serves participants: callers that bring tools and handlers to a session. An
// Attachment is one participant's stream in both directions.
//
// The mutex of an Attachment guards its members below it: whether the stream has ended, and how
// the participant says goodbye. The goroutines of a stream (commands, answers, parts of model
// responses, the opening of the session) are started by spawn and joined by Stream; leaving goes
// on in the background of the shutdown.Coordinator.
package attach

import (
	"context"
	"log/slog"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/operation"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	"github.com/copilot-grpc/copilot-grpc/bridge/stream"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// Host finds and opens sessions, and makes the calls of participants.
type Host interface {
	stream.Sessions
	// Find returns a session that the caller may know of, whatever its state.
	Find(ctx context.Context, id string) (*session.Session, error)
	// Create and Resume open a session with a participant. at is the path of the request, with
	// its dot.
	Create(ctx context.Context, r *bridgev1.CreateSessionRequest, at string, join *session.Joining) (*session.Session, session.Joined, error)
	Resume(ctx context.Context, r *bridgev1.ResumeSessionRequest, at string, join *session.Joining) (*session.Session, session.Joined, error)
	// AdmitParticipant reserves room for one more participant of a tenant until release is called.
	AdmitParticipant(tenant string) (release func(), err error)
	// Tools, Declared and Handling convert what a participant brings: its tools, its commands and
	// what is bound to its connection, and its handlers. at is their path in the request.
	Tools(list []*cliv1.ToolDefinition, at string, exact bool) ([]config.Tool, error)
	Declared(start *bridgev1.AttachStart, at string) ([]config.Command, jsonobj.Object, error)
	Handling(h *bridgev1.Handlers, at string) (*config.Handling, error)
	// Send sends a prompt.
	Send(ctx context.Context, r *bridgev1.SendRequest) (*bridgev1.SendResponse, error)
	// Answer gives the CLI a participant's answer to a callback.
	Answer(ctx context.Context, s *session.Session, a *bridgev1.CallbackAnswer, participant string, exact bool) (journal.Position, error)
	// Respond gives the CLI a part of a participant's response to a model request.
	Respond(ctx context.Context, s *session.Session, r *bridgev1.ModelResponse, participant string) error
}

// Service makes callers participants. It is safe for concurrent use.
type Service struct {
	host       Host
	streams    *stream.Service
	operations *operation.Runner
	shutdown   *shutdown.Coordinator
	codec      *wire.Codec
	observer   *observe.Observer
	audit      audit.Sink
	log        *slog.Logger
}

// Config has the parts that a service uses.
type Config struct {
	Host       Host
	Streams    *stream.Service
	Operations *operation.Runner
	Shutdown   *shutdown.Coordinator
	Codec      *wire.Codec
	Observer   *observe.Observer
	Audit      audit.Sink // not nil
	Log        *slog.Logger
}

// New returns a service.
func New(c Config) *Service {
	return &Service{
		host: c.Host, streams: c.Streams, operations: c.Operations, shutdown: c.Shutdown, codec: c.Codec,
		observer: c.Observer, audit: c.Audit, log: c.Log,
	}
}
