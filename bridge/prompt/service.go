// Package prompt serves the calls that send a prompt: Send, SendStream, SendAndWait and Run. A prompt whose request has an
// id is sent once, also across a crash of the bridge.
//
// A Service remembers the turns of Run and SendAndWait; the mutex of runs guards them. The mutex of
// a oneOff guards the state of a session that Run made for one turn. The goroutines that end such a
// session run in the background of the shutdown.Coordinator.
package prompt

import (
	"context"
	"log/slog"

	"github.com/copilot-grpc/copilot-grpc/bridge/admission"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/request"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	"github.com/copilot-grpc/copilot-grpc/bridge/stream"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Config has the parts that a service uses.
type Config struct {
	Sessions *sessions.Store
	// Create creates a session with an id. at is the path of the request, with its dot.
	Create func(ctx context.Context, r *bridgev1.CreateSessionRequest, id, at string) (*session.Session, error)
	// Delete deletes a session of the caller's tenant that is disconnected.
	Delete     func(ctx context.Context, id string) error
	Parser     *request.Parser
	Streams    *stream.Service
	Operations *idempotency.Runner
	Shutdown   *shutdown.Coordinator
	Admission  *admission.Controller
	// MaxAttachmentBytes returns the bound of an attachment that arrives in pieces.
	MaxAttachmentBytes func() int
	Log                *slog.Logger
}

// Service sends prompts and follows their turns. It is safe for concurrent use.
type Service struct {
	sessions      *sessions.Store
	create        func(ctx context.Context, r *bridgev1.CreateSessionRequest, id, at string) (*session.Session, error)
	remove        func(ctx context.Context, id string) error
	parser        *request.Parser
	streams       *stream.Service
	operations    *idempotency.Runner
	shutdown      *shutdown.Coordinator
	admission     *admission.Controller
	maxAttachment func() int
	log           *slog.Logger
	runs          runs
}

// New returns a service.
func New(c Config) *Service {
	return &Service{
		sessions: c.Sessions, create: c.Create, remove: c.Delete, parser: c.Parser, streams: c.Streams,
		operations: c.Operations, shutdown: c.Shutdown, admission: c.Admission, maxAttachment: c.MaxAttachmentBytes,
		log: c.Log,
	}
}
