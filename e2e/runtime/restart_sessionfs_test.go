package runtime

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/quirks"
	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// TestBridgeOfASessionFileSystemIsKilled: a session whose files are its client's is in the
// middle of a turn when the bridge is killed. Its next life waits for the files; the turn goes
// on when the client has found its way back.
func TestBridgeOfASessionFileSystemIsKilled(t *testing.T) {
	t.Parallel()
	f := newFiled(t)
	works := harness.NewHold()
	s := f.create(f.dialAgain(), copilot.SessionOptions{Tools: []copilot.Tool{works.Tool("works", "worked")}})
	before, at := f.begin(s)
	pending := harness.Await(f.Scripted, works.Asked, "the tool's call")
	f.Crash()
	if f.leavesWork() {
		f.beginsAgain(s, before)
		works.Release()
		return
	}
	if again := f.WaitingFor(s.ID(), bridgev1.CallbackKind_CALLBACK_KIND_TOOL_CALL).GetCallbackId(); again != pending {
		t.Errorf("the tool's call has id %q, was %q", again, pending)
	}
	works.Release()
	f.goesOn(s, before, at)
}

// TestFilesByAnotherClient: the client that had the files left before the bridge was killed, and another one brings
// them. Until then no client can load the session.
func TestFilesByAnotherClient(t *testing.T) {
	t.Parallel()
	f := newFiled(t)
	first := f.dialAgain()
	f.config.Tools = []*cliv1.ToolDefinition{toolNamed("works", true)}
	s := f.create(first, copilot.SessionOptions{})
	before, at := f.begin(s)
	pending := f.WaitingFor(s.ID(), bridgev1.CallbackKind_CALLBACK_KIND_TOOL_CALL).GetCallbackId()
	place := s.ParticipantID()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	f.Eventually("that it has left to be on disk",
		func() bool { return harness.SecretsIn(t, filepath.Join(f.Root, "data"), place) == nil })
	f.Crash()
	_, err := f.Client.Session(s.ID()).SendAndWait(f.Ctx, "nothing")
	harness.WantReason(t, err, bridgev1.ErrorReason_ERROR_REASON_HANDLER_MISSING)
	f.config.Tools = nil // they are the session's already
	s, err = f.dialAgain().ResumeSession(f.Ctx, s.ID(),
		copilot.SessionOptions{Config: f.config, SessionFS: &copilot.SessionFS{Files: f.files},
			OnPermission: copilot.ApproveAll})
	if err != nil {
		t.Fatal(err)
	}
	if f.leavesWork() {
		f.beginsAgain(s, before)
		return
	}
	answer, err := copilot.AnswerTool("worked")
	if err != nil {
		t.Fatal(err)
	}
	resolve(f.Daemon, s.ID(), pending, answer)
	f.goesOn(s, before, at)
}

// filed is a bridge with a session whose files are a client's.
type filed struct {
	*harness.Daemon
	config *cliv1.SessionConfig
	files  *copilot.DirFS
	events string // the CLI's record of the session
}

func newFiled(t *testing.T) *filed {
	t.Helper()
	st := harness.NewScripted(t, harness.OnUser("work", harness.Call("works", nil)),
		harness.OnResult("works", harness.Say("{{tool_result}}")))
	files, dir := files(st)
	f := &filed{Daemon: harness.NewDaemon(st), config: elsewhere(st), files: files,
		events: filepath.Join(dir, "session-state", "events.jsonl")}
	f.config.Provider.ApiKey = nil // the server would need a secret first
	return f
}

// dialAgain is another client of the bridge, which is the test's to keep over its lives.
func (f *filed) dialAgain() *copilot.Client {
	f.T.Helper()
	client, err := copilot.Dial(f.Ctx, "unix:"+filepath.Join(f.Root, "s"))
	if err != nil {
		f.T.Fatal(err)
	}
	f.T.Cleanup(func() { _ = client.Close() })
	return client
}

func (f *filed) create(client *copilot.Client, opts copilot.SessionOptions) *copilot.Session {
	f.T.Helper()
	opts.Config, opts.SessionFS, opts.OnPermission = f.config, &copilot.SessionFS{Files: f.files}, copilot.ApproveAll
	s, err := client.CreateSession(f.Ctx, opts)
	if err != nil {
		f.T.Fatal(err)
	}
	return s
}

// begin has a turn, and another one up to the call of a tool that is on record.
func (f *filed) begin(s *copilot.Session) (ids []string, at []*bridgev1.Position) {
	f.T.Helper()
	f.Say(s, "remember me")
	if _, err := s.Send(f.Ctx, "work"); err != nil {
		f.T.Fatal(err)
	}
	f.Eventually("the call in the session's own files", func() bool {
		text, _ := os.ReadFile(f.events)
		return strings.Contains(string(text), `"tool.execution_start"`) &&
			strings.Contains(string(text), `"external_tool.requested"`)
	})
	return f.Durable(s.ID())
}

// leavesWork reports whether the CLI takes the answer to a call of an earlier process, but does
// not go on where the session's files are a client's.
func (f *filed) leavesWork() bool { return f.Has(quirks.LeavesWork) }

// beginsAgain checks that the turn is lost, and that another one can be had once the client
// is back.
func (f *filed) beginsAgain(s *copilot.Session, before []string) {
	f.T.Helper()
	f.Eventually("a turn with the files there again", func() bool {
		out, err := s.SendAndWait(f.Ctx, "and on")
		if err != nil {
			harness.WantReason(f.T, err, bridgev1.ErrorReason_ERROR_REASON_HANDLER_MISSING)
			return false
		}
		if err := out.Err(); err != nil {
			f.T.Error(err)
		}
		return true
	})
	pending, err := f.Client.Callbacks().ListPending(f.Ctx, &bridgev1.ListPendingRequest{SessionId: s.ID()})
	if err != nil || len(pending.GetCallbacks()) > 0 {
		f.T.Errorf("of the turn that is lost there waits %v, %v", pending, err)
	}
	wantEvents(f.T, f.events, "remember me", "and on")
	if after, _ := f.Durable(s.ID()); len(after) <= len(before) || !slices.Equal(after[:len(before)], before) {
		f.T.Errorf("events were %v, are %v", before, after)
	}
}

// goesOn checks that the turn comes to its end, and that another one can be had.
func (f *filed) goesOn(s *copilot.Session, before []string, at []*bridgev1.Position) {
	f.T.Helper()
	f.After(s.ID(), at[len(at)-1], "session.idle")
	f.Say(s, "and on")
	wantEvents(f.T, f.events, "remember me", "worked", "and on")
	wantNoState(f.T, filepath.Join(f.Root, "home"), s.ID())
	if after, _ := f.Durable(s.ID()); len(after) <= len(before) || !slices.Equal(after[:len(before)], before) {
		f.T.Errorf("events were %v, are %v", before, after)
	}
}
