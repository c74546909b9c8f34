package passthrough

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// fixture is a session with a journal on disk, and the CLI process that has the session. The process runs each
// command as run says.
type fixture struct {
	t       *testing.T
	s       *session.Session
	disk    *faultfs.FS
	version string
	// run carries out a command: it sends the command's events and returns the reply.
	run func(ctx context.Context, command string) (json.RawMessage, error)

	mu    sync.Mutex
	calls []string
	ids   int
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{t: t, disk: &faultfs.FS{}, version: "1.0.102"}
	writer := journal.NewWriter(journal.WriterConfig{FS: f.disk})
	log, _, err := journal.OpenDisk("s1", 7, writer)
	if err != nil {
		t.Fatal(err)
	}
	f.s = session.New(session.Config{
		ID: "s1", Host: f, Epoch: 7, Log: log, MaxEphemeralBytes: 1 << 20,
		Encode: func(*journal.Record, journal.Form) []byte { return nil },
	})
	t.Cleanup(func() {
		if err := f.s.Journal().Close(context.Background()); err != nil {
			t.Error(err)
		}
		writer.Close()
	})
	if _, err := f.s.Loader().Create(t.Context(), session.Opening{}); err != nil {
		t.Fatal(err)
	}
	if err := f.s.Journal().AwaitShown(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f
}

// Runtime and the other methods of session.Host.
func (f *fixture) Runtime(context.Context) (session.Runtime, error) { return f, nil }
func (*fixture) Stopped() <-chan struct{}                           { return nil }
func (*fixture) Go(func(context.Context)) bool                      { return false }
func (*fixture) Spawn(func())                                       {}
func (*fixture) Changed(bridgev1.SessionChange)                     {}
func (*fixture) MarkDirty()                                         {}
func (*fixture) Store() error                                       { return nil }
func (*fixture) LabelsChanged()                                     {}
func (*fixture) CallbackRequested(*callback.Pending)                {}
func (*fixture) CallbackResolved(session.Resolved)                  {}
func (*fixture) Refresh()                                           {}
func (*fixture) BuiltIns(context.Context) *config.BuiltIns          { return nil }

func (*fixture) Watched(map[string]string) []string { return nil }
func (*fixture) Epoch() uint64                      { return 8 }
func (*fixture) Logger() *slog.Logger               { return slog.New(slog.DiscardHandler) }

// Version and the other methods of session.Runtime.
func (f *fixture) Version() string            { return f.version }
func (*fixture) Route(*session.Session) error { return nil }
func (*fixture) Unroute(*session.Session)     {}
func (*fixture) TurnCompleted()               {}
func (*fixture) Traces() bool                 { return false }
func (*fixture) Err() error                   { return nil }
func (*fixture) Ended() <-chan struct{}       { return nil }
func (*fixture) Satellite(context.Context, string, session.Asker) (roster.Satellite, error) {
	return nil, errors.New("the fake CLI has no satellites")
}

func (f *fixture) Call(ctx context.Context, method string, params []byte, _ ...rpcconn.CallOption) (json.RawMessage, error) {
	f.mu.Lock()
	f.calls = append(f.calls, method)
	f.mu.Unlock()
	if method != "session.shell.executeUserRequested" {
		return json.RawMessage(`{}`), nil
	}
	var p struct{ Command string }
	if err := json.Unmarshal(params, &p); err != nil {
		return nil, err
	}
	return f.run(ctx, p.Command)
}

func (f *fixture) Start(
	ctx context.Context, method string, params []byte, _ time.Duration, done func(json.RawMessage, error), _ ...rpcconn.CallOption,
) error {
	go func() { done(f.Call(ctx, method, params)) }()
	return nil
}

// called reports whether a method was called.
func (f *fixture) called(method string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.calls, method)
}

// send sends an event of the session.
func (f *fixture) send(kind string, ephemeral bool, data map[string]any) {
	f.mu.Lock()
	f.ids++
	id := fmt.Sprintf("00000000-0000-4000-8000-%012d", f.ids)
	f.mu.Unlock()
	text, _ := json.Marshal(map[string]any{"type": kind, "id": id, "ephemeral": ephemeral, "data": data}) // always encodes
	rec, err := event.Parse(text)
	if err != nil {
		f.t.Error(err)
		return
	}
	f.s.Ingest(rec, time.Now())
}

// begins sends the event of the start of a command.
func (f *fixture) begins(command, call string) {
	f.send("tool.user_requested", false, map[string]any{"toolCallId": call, "arguments": map[string]any{"command": command}})
}

// prints sends output of a command.
func (f *fixture) prints(call, stream, text string) {
	f.send("tool.shell_output", true, map[string]any{"toolCallId": call, "stream": stream, "text": text})
}

// runShell runs a command, and passes a word for each frame to emit.
func (f *fixture) runShell(ctx context.Context, r *shells, command string, emit func(frame string) error) error {
	find := func(context.Context) (*session.Session, error) { return f.s, nil }
	return r.run(ctx, &bridgev1.RunShellRequest{SessionId: "s1", Command: command}, find, func(m *bridgev1.RunShellResponse) error {
		switch x := m.GetFrame().(type) {
		case *bridgev1.RunShellResponse_ProcessId:
			return emit("process " + x.ProcessId)
		case *bridgev1.RunShellResponse_Stdout:
			return emit("stdout " + x.Stdout)
		case *bridgev1.RunShellResponse_Stderr:
			return emit("stderr " + x.Stderr)
		case *bridgev1.RunShellResponse_ExitCode:
			return emit(fmt.Sprint("exit ", x.ExitCode))
		}
		return emit("lost")
	})
}

func newRunner() *shells {
	return &shells{shutdown: shutdown.New(), log: slog.New(slog.DiscardHandler)}
}

// The events of a command are on disk before readers see them. The reply, which needs no disk, comes earlier: the
// exit code still follows all output.
func TestOutputBeforeTheExitCode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.run = func(_ context.Context, command string) (json.RawMessage, error) {
			f.begins(command, "call-1")
			f.prints("call-1", "stdout", "out")
			f.prints("call-2", "stdout", "of another command")
			f.prints("call-1", "stderr", "err")
			return json.RawMessage(`{"toolCallId":"call-1","exitCode":3}`), nil
		}
		release := f.disk.Stall()
		var frames []string
		ended := make(chan error)
		go func() {
			ended <- f.runShell(t.Context(), newRunner(), "ls", func(frame string) error {
				frames = append(frames, frame)
				return nil
			})
		}()
		synctest.Wait()
		release()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if want := []string{"process call-1", "stdout out", "stderr err", "exit 3"}; !slices.Equal(frames, want) {
			t.Errorf("the frames are %q, want %q", frames, want)
		}
	})
}

// The caller's stream ends between the CLI's reply and the last output: the call ends, and nothing is cancelled.
func TestCallerIsGoneBehindTheReply(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.run = func(_ context.Context, command string) (json.RawMessage, error) {
			f.begins(command, "call-1")
			f.prints("call-1", "stdout", "out")
			return json.RawMessage(`{"toolCallId":"call-1","exitCode":0}`), nil
		}
		release := f.disk.Stall()
		gone := errors.New("the stream has ended")
		ended := make(chan error)
		go func() {
			ended <- f.runShell(t.Context(), newRunner(), "ls", func(string) error { return gone })
		}()
		synctest.Wait()
		release()
		select {
		case err := <-ended:
			if !errors.Is(err, gone) {
				t.Errorf("the error is %v, want %v", err, gone)
			}
		case <-time.After(time.Hour):
			t.Fatal("the call does not end")
		}
		if f.called("session.shell.cancelUserRequested") {
			t.Error("a command that has ended was cancelled")
		}
	})
}

// A call that ends before its command cancels the command, and waits for the CLI's reply.
func TestCommandIsCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		replied := false
		f.run = func(ctx context.Context, command string) (json.RawMessage, error) {
			f.begins(command, "call-1")
			select {
			case <-ctx.Done():
			case <-time.After(time.Minute): // the CLI does not end the command
			}
			replied = true
			return nil, ctx.Err()
		}
		ctx, cancel := context.WithCancel(t.Context())
		err := f.runShell(ctx, newRunner(), "sleep 100", func(string) error { cancel(); return nil })
		if fault.ReasonOf(err) != fault.Cancelled || !replied || !f.called("session.shell.cancelUserRequested") {
			t.Errorf("the error is %v; replied: %t, cancelled: %t", err, replied, f.called("session.shell.cancelUserRequested"))
		}
	})
}

// CLI versions without the events of a user's commands are refused.
func TestOldVersions(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.version = "1.0.89"
	err := f.runShell(t.Context(), newRunner(), "ls", func(string) error { return nil })
	if fault.ReasonOf(err) != fault.MethodUnknown || f.called("session.shell.executeUserRequested") {
		t.Errorf("the error is %v", err)
	}
}
