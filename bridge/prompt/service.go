// Package prompt serves the calls that send a prompt: Send, SendStream, SendAndWait and Run. A prompt whose request has an
// id is sent once, also across a crash of the bridge.
//
// A Service remembers the turns of Run and SendAndWait; the mutex of runs guards them. The mutex of
// a oneOff guards the state of a session that Run made for one turn. The goroutines that end such a
// session run in the background of the shutdown.Coordinator.
package prompt

import (
	"log/slog"

	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/manage"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota/admission"
	"github.com/copilot-grpc/copilot-grpc/bridge/request"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	"github.com/copilot-grpc/copilot-grpc/bridge/stream"
)

// Config has the parts that a service uses.
type Config struct {
	Sessions   *sessions.Store
	Opener     *manage.Sessions
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
	cfg  Config
	runs runs
}

// New returns a service.
func New(c Config) *Service { return &Service{cfg: c} }

// Forget drops what the service has of a session that leaves memory: its turns would keep the journal.
func (svc *Service) Forget(key string) { svc.runs.forget(key) }
