package passthrough

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// userShell is a command that runs in the name of the user.
type userShell struct {
	shells  *shells
	s       *session.Session
	request string // the id by which it is cancelled
	command string
	call    string // the id in its events, "" before it has begun
	begun   func() // called once when it has
	ended   bool   // the CLI has replied to the call
	reader  *journal.Reader
	woken   chan struct{}
	emit    func(*bridgev1.RunShellResponse) error
	records []*journal.Record
}

// shellResult is the CLI's reply, which it sends when the command has ended. err is the error of the call.
type shellResult struct {
	ToolCallID string
	ExitCode   *int64
	Error      string
	err        error
}

// maxShellRead is the size in bytes up to which events are read from the journal at once.
const maxShellRead = 256 << 10

// runAsUser runs a command and emits its output.
func (all *shells) runAsUser(
	ctx context.Context, s *session.Session, r *bridgev1.RunShellRequest, timeout time.Duration,
	emit func(*bridgev1.RunShellResponse) error,
) error {
	sh := &userShell{
		shells: all, s: s, request: sessions.NewID(), command: inDirectory(r),
		woken: make(chan struct{}, 1), emit: emit,
	}
	// Two commands with the same text cannot be distinguished before they have begun, so they start one after
	// the other.
	starting := all.starting(s.Key())
	select {
	case starting <- struct{}{}:
	case <-ctx.Done():
		return session.Classify(ctx.Err(), "")
	}
	held := true
	sh.begun = func() {
		if held {
			held = false
			<-starting
		}
	}
	defer sh.begun()
	var err error
	if sh.reader, err = s.Journal().NewReader(s.Journal().Last(), true, journal.Waking(sh.woken)); err != nil {
		return fault.Wrap(err, fault.Internal, "reading the journal")
	}
	defer sh.reader.Close()
	if timeout > 0 {
		var cancel context.CancelFunc
		cause := fault.New(fault.Timeout, "the command ran for more than %v", timeout)
		ctx, cancel = context.WithTimeoutCause(ctx, timeout, cause)
		defer cancel()
	}
	return sh.run(ctx)
}

// inDirectory returns the command of a request, preceded by a change to its working directory.
func inDirectory(r *bridgev1.RunShellRequest) string {
	if r.GetWorkingDirectory() == "" {
		return r.GetCommand()
	}
	return "cd '" + strings.ReplaceAll(r.GetWorkingDirectory(), "'", `'\''`) + "' || exit\n" + r.GetCommand()
}

// run makes the call, and ends the command when its output has no reader.
func (sh *userShell) run(ctx context.Context) error {
	calling, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	ended := make(chan shellResult, 1)
	go func() {
		var params jsonobj.Object
		params.SetString("requestId", sh.request)
		params.SetString("command", sh.command)
		text, _, err := sh.s.Loader().Invoke(calling, "session.shell.executeUserRequested", params)
		out := shellResult{err: err}
		if err == nil && json.Unmarshal(text, &out) != nil {
			out.err = fault.New(fault.CLIProtocolError, "the result of a command is malformed")
		}
		ended <- out
	}()
	result, err := sh.follow(ctx, ended)
	switch {
	case err != nil && sh.ended:
		return err
	case err != nil:
		sh.cancel(ctx)
		select {
		case <-ended:
		case <-time.After(shellCloseTimeout):
			cancel()
			<-ended
		}
		return err
	}
	return sh.finish(result)
}

// follow emits the command's output until the CLI has replied, and returns the reply. An error means that the output
// has no reader.
func (sh *userShell) follow(ctx context.Context, ended <-chan shellResult) (shellResult, error) {
	for {
		if err := sh.pass(); err != nil {
			return shellResult{}, err
		}
		select {
		case <-sh.woken:
		case result := <-ended:
			sh.ended = true
			if result.err != nil {
				return result, nil
			}
			// The CLI sends all events before the reply. Readers see them when they are on disk.
			if err := sh.s.Journal().AwaitShown(ctx); err != nil {
				return result, session.Classify(context.Cause(ctx), "session.shell.executeUserRequested")
			}
			return result, sh.pass()
		case <-ctx.Done():
			return shellResult{}, session.Classify(context.Cause(ctx), "session.shell.executeUserRequested")
		case <-sh.shells.shutdown.Stopped().Done():
			return shellResult{}, fault.New(fault.Draining, "the server stops")
		}
	}
}

// pass emits the output that the journal has.
func (sh *userShell) pass() error {
	for {
		var gap *journal.Gap
		sh.records, gap = sh.reader.Next(sh.records[:0], maxShellRead)
		if gap != nil && sh.call != "" {
			lost := &bridgev1.RunShellResponse_LostBytes{LostBytes: -1}
			if err := sh.emit(&bridgev1.RunShellResponse{Frame: lost}); err != nil {
				return err
			}
		}
		if len(sh.records) == 0 && gap == nil {
			return nil
		}
		for _, rec := range sh.records {
			if err := sh.take(rec); err != nil {
				return err
			}
		}
	}
}

// take emits the frame of an event, if it is of the command.
func (sh *userShell) take(rec *journal.Record) error {
	if rec.Type != "tool.user_requested" && rec.Type != "tool.shell_output" {
		return nil
	}
	var event struct {
		Data struct {
			ToolCallID, Stream, Text string
			Arguments                struct{ Command string }
		}
	}
	if json.Unmarshal(rec.JSON, &event) != nil {
		return nil
	}
	data := event.Data
	switch {
	case rec.Type == "tool.user_requested" && sh.call == "" && data.Arguments.Command == sh.command:
		sh.call = data.ToolCallID
		sh.begun()
		return sh.emit(&bridgev1.RunShellResponse{Frame: &bridgev1.RunShellResponse_ProcessId{ProcessId: sh.call}})
	case rec.Type != "tool.shell_output" || sh.call == "" || data.ToolCallID != sh.call:
		return nil
	case data.Stream == "stderr":
		return sh.emit(&bridgev1.RunShellResponse{Frame: &bridgev1.RunShellResponse_Stderr{Stderr: data.Text}})
	}
	return sh.emit(&bridgev1.RunShellResponse{Frame: &bridgev1.RunShellResponse_Stdout{Stdout: data.Text}})
}

// finish emits the exit code, or returns the error of the call.
func (sh *userShell) finish(r shellResult) error {
	switch {
	case r.err != nil:
		return r.err
	case r.ExitCode == nil:
		return fault.New(fault.CLIError, "the command has no exit code: %s", r.Error)
	}
	return sh.emit(&bridgev1.RunShellResponse{Frame: &bridgev1.RunShellResponse_ExitCode{ExitCode: *r.ExitCode}})
}

// cancel ends a command whose caller has gone.
func (sh *userShell) cancel(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shellCloseTimeout)
	defer cancel()
	var params jsonobj.Object
	params.SetString("requestId", sh.request)
	if _, _, err := sh.s.Loader().Do(ctx, "session.shell.cancelUserRequested", params); err != nil {
		sh.shells.log.Warn("ending a command failed", "session_id", sh.s.ID(), "process_id", sh.call, "error", err)
	}
}

// starting returns the channel, of capacity 1, that a command of the session fills until it has begun.
func (all *shells) starting(key string) chan struct{} {
	gate, _ := all.starts.LoadOrStore(key, make(chan struct{}, 1))
	return gate.(chan struct{})
}
