package bridge

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/quirks"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const (
	// maxShellBytes bounds the output of a command that its caller has not read. What
	// comes beyond it is lost, and the caller is told how much: the CLI's connection is
	// everybody's, and nobody may hold it up.
	maxShellBytes = 1 << 20
	// maxUnclaimedShells bounds the commands whose output nobody has asked for: those whose
	// start is still being replied to. Beyond it the oldest is forgotten.
	maxUnclaimedShells = 16
	// shellPiece is what a piece of output costs besides its text.
	shellPiece = 64
)

// The notifications of commands.
const (
	shellOutput = "shell.output"
	shellExit   = "shell.exit"
)

// shells are the commands of one runtime, by process id. Their output may come before
// the reply that says the id.
type shells struct {
	mu        sync.Mutex
	byID      map[string]*shell
	unclaimed []string
	lost      error
}

// shell is one command.
type shell struct {
	changed chan struct{} // has a value when something came

	mu      sync.Mutex
	pieces  []*bridgev1.RunShellResponse
	size    int
	dropped int64
	over    bool
	err     error // why it is over without an exit code
}

// get returns a command. claim takes it out of those that may be forgotten.
func (s *shells) get(id string, claim bool) *shell {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.byID[id]
	if sh == nil {
		sh = &shell{changed: make(chan struct{}, 1), err: s.lost, over: s.lost != nil}
		if s.byID == nil {
			s.byID = map[string]*shell{}
		}
		s.byID[id] = sh
		s.unclaimed = append(s.unclaimed, id)
	}
	if claim {
		s.unclaimed = without(s.unclaimed, id)
	}
	if len(s.unclaimed) > maxUnclaimedShells {
		delete(s.byID, s.unclaimed[0])
		s.unclaimed = s.unclaimed[1:]
	}
	return sh
}

func without(list []string, one string) []string {
	for i, s := range list {
		if s == one {
			return append(list[:i:i], list[i+1:]...)
		}
	}
	return list
}

func (s *shells) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byID, id)
}

// take takes a notification. It runs on the connection's reader.
func (s *shells) take(method string, params []byte) {
	var p struct {
		ProcessID, Stream, Data string
		ExitCode                int64
	}
	if json.Unmarshal(params, &p) != nil || p.ProcessID == "" {
		return
	}
	sh := s.get(p.ProcessID, false)
	switch {
	case method == shellExit:
		sh.add(&bridgev1.RunShellResponse{Frame: &bridgev1.RunShellResponse_ExitCode{ExitCode: p.ExitCode}}, 0)
	case p.Stream == "stderr":
		sh.add(&bridgev1.RunShellResponse{Frame: &bridgev1.RunShellResponse_Stderr{Stderr: p.Data}}, len(p.Data)+shellPiece)
	default:
		sh.add(&bridgev1.RunShellResponse{Frame: &bridgev1.RunShellResponse_Stdout{Stdout: p.Data}}, len(p.Data)+shellPiece)
	}
}

// end ends all commands: their runtime is gone.
func (s *shells) end(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost = fault.Wrap(cause, fault.RuntimeLost, "the runtime ended while a command ran")
	for _, sh := range s.byID {
		sh.fail(s.lost)
	}
}

// add adds a piece of output of a size, or without one the exit.
func (sh *shell) add(piece *bridgev1.RunShellResponse, size int) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	switch {
	case sh.over:
		return
	case sh.size+size > maxShellBytes:
		sh.dropped += int64(size - shellPiece)
		return
	}
	if sh.dropped > 0 {
		sh.pieces = append(sh.pieces, &bridgev1.RunShellResponse{Frame: &bridgev1.RunShellResponse_LostBytes{LostBytes: sh.dropped}})
		sh.dropped = 0
	}
	sh.pieces, sh.size, sh.over = append(sh.pieces, piece), sh.size+size, size == 0
	sh.wake()
}

func (sh *shell) fail(err error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if !sh.over {
		sh.over, sh.err = true, err
		sh.wake()
	}
}

func (sh *shell) wake() {
	select {
	case sh.changed <- struct{}{}:
	default:
	}
}

// drain takes what has come.
func (sh *shell) drain() (pieces []*bridgev1.RunShellResponse, over bool, err error) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	pieces, sh.pieces, sh.size = sh.pieces, nil, 0
	return pieces, sh.over, sh.err
}

// RunShell runs a command and emits its output.
func (b *Bridge) RunShell(ctx context.Context, r *bridgev1.RunShellRequest, emit func(*bridgev1.RunShellResponse) error) error {
	if !b.cfg.Raw {
		return rawOff()
	}
	if r.GetCommand() == "" {
		return fault.New(fault.InvalidField, "command is required").WithField("command")
	}
	timeout, err := fields.Duration(r.GetTimeout(), "timeout", time.Millisecond, maxShellTime)
	if err != nil {
		return err
	}
	s, err := b.open(ctx, r.GetSessionId())
	if err != nil {
		return err
	}
	defer s.Hold()()
	silent, err := b.silent(ctx, s)
	if err != nil {
		return err
	}
	if silent {
		return b.runUserShell(ctx, s, r, timeout, emit)
	}
	id, sh, forget, err := b.startShell(ctx, s, r, timeout)
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
		case <-b.shutdown.Stopping():
			err = fault.New(fault.Draining, "the server stops")
		}
	}
	if err != nil {
		b.killShell(ctx, s, id)
	}
	return err
}

// maxShellTime bounds the time that a command may be given.
const maxShellTime = 24 * time.Hour

// silent reports whether the session's CLI is one that does not tell of such commands.
func (b *Bridge) silent(ctx context.Context, s *session.Session) (bool, error) {
	rt, err := s.Loaded(ctx)
	if err != nil {
		return false, err
	}
	return quirks.SilentShells.In(rt.Version()), nil
}

// startShell has the CLI start a command.
func (b *Bridge) startShell(ctx context.Context, s *session.Session, r *bridgev1.RunShellRequest, timeout time.Duration) (id string, sh *shell, forget func(), err error) {
	rt, err := s.Loaded(ctx)
	if err != nil {
		return "", nil, nil, err
	}
	bind, ok := rt.(*binding)
	if !ok {
		return "", nil, nil, fault.New(fault.Internal, "the runtime is a %T", rt)
	}
	var params session.Object
	params.SetString("command", r.GetCommand())
	if r.GetWorkingDirectory() != "" {
		params.SetString("cwd", r.GetWorkingDirectory())
	}
	if timeout > 0 {
		text, _ := json.Marshal(timeout.Milliseconds()) // a number always encodes
		params.Set("timeout", text)
	}
	result, at, err := s.Do(ctx, "session.shell.exec", params)
	record(ctx, at)
	if err != nil {
		return "", nil, nil, err
	}
	var started struct{ ProcessID string }
	if err := json.Unmarshal(result, &started); err != nil || started.ProcessID == "" {
		return "", nil, nil, fault.New(fault.CLIProtocolError, "session.shell.exec gave no process id")
	}
	return started.ProcessID, bind.shells.get(started.ProcessID, true), func() { bind.shells.forget(started.ProcessID) }, nil
}

// killShell ends a command whose caller has gone.
func (b *Bridge) killShell(ctx context.Context, s *session.Session, id string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	var params session.Object
	params.SetString("processId", id)
	if _, _, err := s.Do(ctx, "session.shell.kill", params); err != nil {
		b.log.Warn("command not ended", "session_id", s.ID(), "process_id", id, "error", err)
	}
}
