package passthrough

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/quirks"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// shells runs commands in the runtimes of sessions and streams their output. The CLI runs a command in the name of the
// user, and reports its output in events with the id of a tool call, which the event of the command's start contains.
// Each command has a goroutine for its call to the CLI, which run joins. It is safe for concurrent use.
type shells struct {
	shutdown *shutdown.Coordinator // commands end when it stops
	log      *slog.Logger
	// starts are channels by session in which a command has run, held while a command begins.
	starts sync.Map
}

const (
	// maxShellTime bounds the time limit of a command.
	maxShellTime = 24 * time.Hour
	// shellCloseTimeout bounds the end of a command whose caller has gone.
	shellCloseTimeout = 30 * time.Second
)

// run runs a command in the runtime of a session that find returns, and emits its output.
func (all *shells) run(
	ctx context.Context, r *bridgev1.RunShellRequest, find func(context.Context) (*session.Session, error),
	emit func(*bridgev1.RunShellResponse) error,
) error {
	if r.GetCommand() == "" {
		return fault.New(fault.InvalidField, "command is required").WithField("command")
	}
	timeout, err := fields.Duration(r.GetTimeout(), "timeout", time.Millisecond, maxShellTime)
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
	return all.runAsUser(ctx, s, r, timeout, emit)
}
