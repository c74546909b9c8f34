// Package shell runs commands in the runtimes of sessions and streams their output.
//
// The mutex of a Table guards its list of commands; that of a command guards its output. A Table
// may lock a command, never the other way round. A Runner has one channel for each session in
// which a command has run, which Forget removes. The call to the CLI of a command that runs in
// the name of the user has a goroutine, which Run joins.
package shell

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	"github.com/copilot-grpc/copilot-grpc/bridge/quirks"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// closeTimeout bounds the end of a command whose caller has gone.
const closeTimeout = 30 * time.Second

// Host is a runtime that keeps the output of its commands.
type Host interface{ Shells() *Table }

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
	silent, err := silent(ctx, s)
	if err != nil {
		return err
	}
	if silent {
		return rn.runAsUser(ctx, s, r, timeout, emit)
	}
	id, sh, forget, err := startCommand(ctx, s, r, timeout)
	if err != nil {
		return err
	}
	defer forget()
	err = emit(&bridgev1.RunShellResponse{Frame: &bridgev1.RunShellResponse_ProcessId{ProcessId: id}})
	for over := false; err == nil && !over; {
		var pieces []*bridgev1.RunShellResponse
		pieces, over, err = sh.drain()
		for i := 0; i < len(pieces) && err == nil; i++ {
			err = emit(pieces[i])
		}
		if over || err != nil {
			break
		}
		select {
		case <-sh.changed:
		case <-ctx.Done():
			err = ctx.Err()
		case <-rn.shutdown.Stopping():
			err = fault.New(fault.Draining, "the server stops")
		}
	}
	if err != nil {
		rn.kill(ctx, s, id)
	}
	return err
}

// maxTime bounds the time limit of a command.
const maxTime = 24 * time.Hour

// silent reports whether the session's CLI is one that does not tell of such commands.
func silent(ctx context.Context, s *session.Session) (bool, error) {
	rt, err := s.Loader().Load(ctx)
	if err != nil {
		return false, err
	}
	return quirks.SilentShells.In(rt.Version()), nil
}

// startCommand has the CLI start a command.
func startCommand(ctx context.Context, s *session.Session, r *bridgev1.RunShellRequest, timeout time.Duration) (
	id string, sh *command, forget func(), err error,
) {
	rt, err := s.Loader().Load(ctx)
	if err != nil {
		return "", nil, nil, err
	}
	host, ok := rt.(Host)
	if !ok {
		return "", nil, nil, fault.New(fault.Internal, "the runtime is a %T", rt)
	}
	var params jsonobj.Object
	params.SetString("command", r.GetCommand())
	if r.GetWorkingDirectory() != "" {
		params.SetString("cwd", r.GetWorkingDirectory())
	}
	if timeout > 0 {
		text, _ := json.Marshal(timeout.Milliseconds()) // a number always encodes
		params.Set("timeout", text)
	}
	result, at, err := s.Loader().Do(ctx, "session.shell.exec", params)
	position.Record(ctx, position.Position(at))
	if err != nil {
		return "", nil, nil, err
	}
	var started struct{ ProcessID string }
	if err := json.Unmarshal(result, &started); err != nil || started.ProcessID == "" {
		return "", nil, nil, fault.New(fault.CLIProtocolError, "session.shell.exec gave no process id")
	}
	id = started.ProcessID
	return id, host.Shells().get(id, true), func() { host.Shells().forget(id) }, nil
}

// kill ends a command whose caller has gone.
func (rn *Runner) kill(ctx context.Context, s *session.Session, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	var params jsonobj.Object
	params.SetString("processId", id)
	if _, _, err := s.Loader().Do(ctx, "session.shell.kill", params); err != nil {
		rn.log.Warn("ending a command failed", "session_id", s.ID(), "process_id", id, "error", err)
	}
}
