// Package shell runs commands in the runtimes of sessions and streams their output.
//
// The CLI runs a command in the name of the user and reports its output in events with the id of a tool call. The event
// of the command's start contains that id.
//
// A Runner has one channel for each session in which a command has run, which Forget removes. Each command has a
// goroutine for its call to the CLI, which Run joins.
package shell

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/quirks"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// closeTimeout bounds the end of a command whose caller has gone.
const closeTimeout = 30 * time.Second

// Runner runs commands. It is safe for concurrent use.
type Runner struct {
	shutdown *shutdown.Coordinator
	log      *slog.Logger
	// starts are channels by session, held while a command begins.
	starts sync.Map
}

// New returns a runner, whose commands end when s stops.
func New(s *shutdown.Coordinator, log *slog.Logger) *Runner { return &Runner{shutdown: s, log: log} }

// Forget removes what the runner keeps of the session of a key.
func (rn *Runner) Forget(key string) { rn.starts.Delete(key) }

// Run runs a command in the runtime of a session that find returns, and emits its output.
func (rn *Runner) Run(
	ctx context.Context, r *bridgev1.RunShellRequest, find func(context.Context) (*session.Session, error),
	emit func(*bridgev1.RunShellResponse) error,
) error {
	if r.GetCommand() == "" {
		return fault.New(fault.InvalidField, "command is required").WithField("command")
	}
	timeout, err := fields.Duration(r.GetTimeout(), "timeout", time.Millisecond, maxTime)
	if err != nil {
		return err
	}
	s, err := find(ctx)
	if err != nil {
		return err
	}
	defer s.Loader().Hold()()
	rt, err := s.Loader().Load(ctx)
	if err != nil {
		return err
	}
	if v := rt.Version(); quirks.NoUserShells.In(v) {
		return fault.New(fault.MethodUnknown, "RunShell requires CLI 1.0.92 or later; the session's runtime has CLI %s", v)
	}
	return rn.runAsUser(ctx, s, r, timeout, emit)
}

// maxTime bounds the time limit of a command.
const maxTime = 24 * time.Hour
