package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/race"
)

// stateFixture is a bridge whose session "s" enters a state.
type stateFixture struct {
	*bridgetest.Bridge
	// entering are the calls of other callers that keep the session in its state for a while.
	entering sync.WaitGroup
}

// slowCall is how long a call takes that keeps the session in a state, and operationLimit how long an operation may
// take, by the clock of synctest: it moves on when the operation has ended or waits, so that no operation comes too late.
const (
	slowCall       = 300 * time.Millisecond
	operationLimit = 20 * time.Second
)

// sessionState is a state of a session in which callers meet it.
type sessionState struct {
	name string
	// A call of the CLI that takes slowCall, so that the operation arrives meanwhile; the first calls of it are quick.
	slow  string
	quick int
	// enter puts a new session into the state.
	enter func(r *stateFixture)
	ends  bool // afterwards there is no session
}

var sessionStates = []sessionState{
	{name: "idle", enter: func(*stateFixture) {}},
	{name: "turn", enter: func(r *stateFixture) { r.Begin("s", "long") }},
	{name: "asking", enter: func(r *stateFixture) { r.askFor("tool") }},
	{name: "asking for permission", enter: func(r *stateFixture) { r.askFor("command") }},
	{name: "asking for input", enter: func(r *stateFixture) { r.askFor("question") }},
	{name: "unloaded", enter: func(r *stateFixture) { r.unload("s") }},
	{name: "reloading", slow: "session.resume", enter: func(r *stateFixture) {
		r.unload("s")
		r.loadSlowly()
	}},
	{name: "lost", enter: func(r *stateFixture) { r.kill() }},
	{name: "lost in a turn", enter: func(r *stateFixture) {
		r.Begin("s", "long")
		r.kill()
	}},
	{name: "lost asking", enter: func(r *stateFixture) {
		r.askFor("tool")
		r.kill()
	}},
	{name: "lost asking for permission", enter: func(r *stateFixture) {
		r.askFor("command")
		r.kill()
	}},
	{name: "lost asking for input", enter: func(r *stateFixture) {
		r.askFor("question")
		r.kill()
	}},
	{name: "resuming, lost in a turn", slow: "session.resume", enter: func(r *stateFixture) {
		r.Begin("s", "long")
		r.kill()
		r.loadSlowly()
	}},
	{name: "resuming, lost asking", slow: "session.resume", enter: func(r *stateFixture) {
		r.askFor("tool")
		r.kill()
		r.loadSlowly()
	}},
	{name: "restored", enter: func(r *stateFixture) { r.restart() }},
	{name: "without credentials", enter: func(r *stateFixture) {
		r.provide()
		r.restart()
	}},
	{name: "in the CLI's history only", enter: func(r *stateFixture) {
		r.Drain(0)
		r.FakeCLI().Kill()
		r.Bridge = r.Reopen(r.T.TempDir())
	}},
	{name: "exporting", enter: func(r *stateFixture) { r.export() }},
	{name: "moving", slow: "session.destroy", enter: func(r *stateFixture) {
		r.meanwhile("session.destroy", 1, func() error {
			_, err := r.Store().HandOver(r.Context(), "s", false, func() error { return nil })
			return err
		})
	}},
	{name: "creating", slow: "session.create", quick: 1, enter: func(r *stateFixture) {
		r.delete()
		r.meanwhile("session.create", 2, func() error {
			_, err := r.Sessions.CreateSession(r.Context(), declared("s"))
			return err
		})
	}},
	{name: "deleting", slow: "session.delete", enter: func(r *stateFixture) {
		r.meanwhile("session.delete", 1, func() error {
			_, err := r.Sessions.DeleteSession(r.Context(), &bridgev1.DeleteSessionRequest{SessionId: "s"})
			return err
		})
	}, ends: true},
	{name: "disconnected", enter: func(r *stateFixture) { r.Disconnect("s") }},
	{name: "deleted", enter: func(r *stateFixture) { r.delete() }, ends: true},
}

// declared creates a session with what the operations need: a tool and handlers that callers of Resolve answer for, and
// a provider.
func declared(id string) *bridgev1.CreateSessionRequest {
	q := &bridgev1.CreateSessionRequest{
		SessionId: id,
		Config: &cliv1.SessionConfig{
			Streaming: proto.Bool(true), Provider: &cliv1.ProviderConfig{BaseUrl: "http://127.0.0.1:1"},
		},
		Handlers: &bridgev1.Handlers{
			Permission: true, Kinds: []bridgev1.CallbackKind{bridgev1.CallbackKind_CALLBACK_KIND_USER_INPUT},
		},
	}
	bridgetest.WithTool(q)
	return q
}

// newState makes a bridge with the session "s", which has had a turn.
func newState(t *testing.T, slow string, quick int) *stateFixture {
	script := fakecli.Script{Prompts: slices.Concat(bridgetest.Hanging.Prompts, bridgetest.Asking.Prompts), Replies: bridgetest.Asking.Replies}
	if slow != "" {
		script.Faults = []fakecli.MethodFault{{Method: slow, After: quick,
			Fault: fakecli.Fault{Kind: fakecli.FaultDelay, DelayMS: int(slowCall.Milliseconds())}}}
	}
	r := &stateFixture{Bridge: bridgetest.New(t, script, bridgetest.Stored, bridgetest.Tenants(quota.Limits{}), func(c *bridgetest.Options) { c.Raw = true })}
	if _, err := r.Sessions.CreateSession(t.Context(), declared("s")); err != nil {
		t.Fatal(err)
	}
	r.Ask("s", "hi")
	return r
}

// askFor begins a turn that waits for an answer.
func (r *stateFixture) askFor(prompt string) {
	r.T.Helper()
	r.Begin("s", prompt)
	bridgetest.Eventually(r.T, "the question", func() bool { return r.asked() == 1 })
}

// asked is how many callbacks of the session wait.
func (r *stateFixture) asked() int {
	list, err := r.Callbacks.ListPending(r.T.Context(), &bridgev1.ListPendingRequest{SessionId: "s"})
	if err != nil {
		return -1
	}
	return len(list.GetCallbacks())
}

func (r *stateFixture) unload(id string) {
	r.T.Helper()
	s, err := r.Store().Open(r.T.Context(), id)
	if err != nil {
		r.T.Fatal(err)
	}
	if ok, err := s.Loader().Unload(r.T.Context(), 0); !ok || err != nil {
		r.T.Fatalf("the session is not unloaded: %v", err)
	}
}

func (r *stateFixture) delete() {
	r.T.Helper()
	_, err := r.Sessions.DeleteSession(r.T.Context(), &bridgev1.DeleteSessionRequest{SessionId: "s"})
	if err != nil {
		r.T.Fatal(err)
	}
}

// provide gives the session credentials, which no restart keeps.
func (r *stateFixture) provide() {
	r.T.Helper()
	if err := provideCredentials(r.T.Context(), r); err != nil {
		r.T.Fatal(err)
	}
}

// restart has the session restored by the next server, which has not loaded it.
func (r *stateFixture) restart() {
	r.T.Helper()
	s, err := r.Store().Open(r.T.Context(), "s")
	if err != nil {
		r.T.Fatal(err)
	}
	bridgetest.Eventually(r.T, "the outbox to be empty", s.Prompts().Outbox().Empty)
	if err := errors.Join(s.Prompts().Outbox().Flush(), s.Journal().AwaitShown(r.T.Context())); err != nil {
		r.T.Fatal(err)
	}
	_ = r.Store().Save(r.Store().EntryOf(s))
	r.Bridge = r.Restart()
}

// kill ends the CLI and waits until the session knows it. The session may be in the next CLI by then.
func (r *stateFixture) kill() {
	r.T.Helper()
	s, err := r.Store().Open(r.T.Context(), "s")
	if err != nil {
		r.T.Fatal(err)
	}
	before, err := s.Loader().Load(r.T.Context())
	if err != nil {
		r.T.Fatal(err)
	}
	r.FakeCLI().Kill()
	bridgetest.Eventually(r.T, "the end of the runtime", func() bool {
		if s.Snapshot().GetState() != bridgev1.SessionState_SESSION_STATE_LOADED {
			return true
		}
		now, err := s.Loader().Load(r.T.Context())
		return err == nil && now != before
	})
}

// loadSlowly has the session loaded by another caller, and waits until the CLI has the request.
func (r *stateFixture) loadSlowly() {
	r.T.Helper()
	r.meanwhile("session.resume", 1, func() error {
		_, err := r.Sessions.SetModel(r.Context(), &bridgev1.SetModelRequest{SessionId: "s", ModelId: "m1"})
		if reason := fault.ReasonOf(err); reason == fault.SessionNotFound {
			return nil // the operation has ended the session
		}
		return err
	})
}

// meanwhile makes a call as another caller, and waits until the CLI has received the method for the n-th
// time for the session.
func (r *stateFixture) meanwhile(method string, n int, call func() error) {
	r.T.Helper()
	r.entering.Go(func() {
		if err := call(); err != nil {
			r.T.Errorf("the call that keeps the state: %v", err)
		}
	})
	bridgetest.Eventually(r.T, method, func() bool {
		received := 0
		for _, e := range r.FakeCLI().Log() {
			if e.Kind == fakecli.EntryReceived && e.Type == method && strings.Contains(string(e.Body), `"sessionId":"s"`) {
				received++
			}
		}
		return received >= n
	})
}

// export exports the session to a slow reader, and waits until the reader has the beginning.
func (r *stateFixture) export() {
	r.T.Helper()
	began := make(chan struct{})
	var once sync.Once
	r.entering.Go(func() {
		err := r.Transfers.ExportSession(r.Context(), &bridgev1.ExportSessionRequest{SessionId: "s"},
			func(*bridgev1.ExportSessionResponse) error {
				once.Do(func() {
					close(began)
					time.Sleep(slowCall)
				})
				return nil
			})
		if err != nil {
			r.T.Errorf("the export: %v", err)
		}
	})
	<-began
}

// raceSample is of how many cells the race detector sees one: all take minutes under it, and have the same goroutines.
const raceSample = 7

// TestOperationsInStates performs each operation in each state. It ends within its limit with the result of the table.
// Whatever it was, the session works afterwards: an abort leaves no callback and no turn, also if no runtime had the
// session when it came, and a prompt right behind the abort completes.
func TestOperationsInStates(t *testing.T) {
	t.Parallel()
	cell := 0
	for _, state := range sessionStates {
		for _, op := range sessionOperations {
			if cell++; race.Enabled && cell%raceSample != 0 {
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", op.name, state.name), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { performIn(t, state, op) })
			})
		}
	}
}

// performIn performs an operation in a state.
func performIn(t *testing.T, state sessionState, op sessionOperation) {
	r := newState(t, state.slow, state.quick)
	state.enter(r)

	ctx, cancel := context.WithTimeout(t.Context(), operationLimit)
	defer cancel()
	want := "ok"
	if w := op.except[state.name]; w != "" {
		want = w
	}
	got := resultOf(op.do(ctx, r))
	if !slices.Contains(strings.Split(want, "|"), got) {
		t.Errorf("%s, want %s", got, want)
	}
	r.entering.Wait()
	if state.ends || op.name == "DeleteSession" && got == "ok" {
		r.hasEnded()
		return
	}
	r.reopen()
	r.works(op.name == "Abort")
}

// resultOf is the result of an operation as the table has it.
func resultOf(err error) string {
	switch reason := fault.ReasonOf(err); {
	case err == nil:
		return "ok"
	case reason != fault.None:
		return strings.TrimPrefix(reason.String(), "ERROR_REASON_")
	}
	return err.Error()
}

// hasEnded fails if there is still a session.
func (r *stateFixture) hasEnded() {
	r.T.Helper()
	_, err := r.Sessions.ResumeSession(r.T.Context(), &bridgev1.ResumeSessionRequest{SessionId: "s"})
	if fault.ReasonOf(err) != fault.SessionNotFound {
		r.T.Errorf("a resume of the session that was deleted: %v", err)
	}
}

// reopen makes the session usable again, as a caller or another server would.
func (r *stateFixture) reopen() {
	r.T.Helper()
	_, err := r.Load(r.T.Context(), "s", func() ([]backend.Request, error) { return nil, nil })
	if err != nil {
		r.T.Fatal(err)
	}
	out, err := r.Sessions.GetSession(r.T.Context(), &bridgev1.GetSessionRequest{SessionId: "s"})
	switch state := out.GetSession().GetState(); {
	case fault.ReasonOf(err) == fault.SessionNotFound, state == bridgev1.SessionState_SESSION_STATE_STORED:
		provider := &cliv1.ProviderConfig{BaseUrl: "http://127.0.0.1:1", ApiKey: proto.String("key")}
		_, err = r.Sessions.ResumeSession(r.T.Context(), &bridgev1.ResumeSessionRequest{SessionId: "s",
			Config: &cliv1.SessionConfig{Provider: provider}})
	case state == bridgev1.SessionState_SESSION_STATE_CREDENTIALS_NEEDED:
		r.provide()
	}
	if err != nil {
		r.T.Fatalf("opening the session afterwards: %v", err)
	}
}

// works fails unless an abort ends what runs, and a prompt right behind it completes.
func (r *stateFixture) works(aborted bool) {
	r.T.Helper()
	if !aborted {
		if _, err := r.Sessions.Abort(r.T.Context(), &bridgev1.AbortRequest{SessionId: "s"}); err != nil {
			r.T.Fatalf("abort afterwards: %v", err)
		}
	}
	out, err := r.Turns.SendAndWait(r.T.Context(), &bridgev1.SendAndWaitRequest{SessionId: "s",
		Prompt: &bridgev1.Prompt{Text: "hi"}, Timeout: durationpb.New(operationLimit)})
	if err != nil || out.GetOutcome().GetText() != "You said: hi" {
		r.T.Fatalf("the next turn is %v, %v", out, err)
	}
	got, err := r.Sessions.GetSession(r.T.Context(), &bridgev1.GetSessionRequest{SessionId: "s"})
	if n := r.asked(); err != nil || got.GetSession().GetTurnRunning() || n != 0 {
		r.T.Errorf("after the next turn %d callbacks are pending, and the session is %v, %v", n, got, err)
	}
}
