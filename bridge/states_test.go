package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/race"
)

// stateRig is a bridge whose session "s" enters a state.
type stateRig struct {
	*keptLife
	// entering are the calls of other callers that keep the session in its state for a while.
	entering sync.WaitGroup
}

// slowCall is how long a call takes that keeps the session in a state, and operationLimit how long an operation may
// take.
const (
	slowCall       = 300 * time.Millisecond
	operationLimit = 20 * time.Second
)

// The states of a session in which callers meet it. Each function puts a new session into the state. slow is a call of
// the CLI that takes slowCall, so that the operation arrives meanwhile; the first calls of it are quick.
var sessionStates = []struct {
	name  string
	slow  string
	quick int
	enter func(r *stateRig)
	ends  bool // afterwards there is no session
}{
	{name: "idle", enter: func(*stateRig) {}},
	{name: "turn", enter: func(r *stateRig) { r.begin("s", "long") }},
	{name: "asking", enter: func(r *stateRig) { r.askFor("tool") }},
	{name: "asking for permission", enter: func(r *stateRig) { r.askFor("command") }},
	{name: "asking for input", enter: func(r *stateRig) { r.askFor("question") }},
	{name: "unloaded", enter: func(r *stateRig) { r.unload("s") }},
	{name: "reloading", slow: "session.resume", enter: func(r *stateRig) {
		r.unload("s")
		r.loadSlowly()
	}},
	{name: "lost", enter: func(r *stateRig) { r.kill() }},
	{name: "lost in a turn", enter: func(r *stateRig) {
		r.begin("s", "long")
		r.kill()
	}},
	{name: "lost asking", enter: func(r *stateRig) {
		r.askFor("tool")
		r.kill()
	}},
	{name: "lost asking for permission", enter: func(r *stateRig) {
		r.askFor("command")
		r.kill()
	}},
	{name: "lost asking for input", enter: func(r *stateRig) {
		r.askFor("question")
		r.kill()
	}},
	{name: "resuming, lost in a turn", slow: "session.resume", enter: func(r *stateRig) {
		r.begin("s", "long")
		r.kill()
		r.loadSlowly()
	}},
	{name: "resuming, lost asking", slow: "session.resume", enter: func(r *stateRig) {
		r.askFor("tool")
		r.kill()
		r.loadSlowly()
	}},
	{name: "restored", enter: func(r *stateRig) { r.restart() }},
	{name: "without credentials", enter: func(r *stateRig) {
		r.provide()
		r.restart()
	}},
	{name: "in the CLI's history only", enter: func(r *stateRig) {
		r.Drain(0)
		r.life().Kill()
		r.keptLife = openKept(r.t, r.t.TempDir(), r.home, r.script, r.change...)
	}},
	{name: "exporting", enter: func(r *stateRig) { r.export() }},
	{name: "moving", slow: "session.destroy", enter: func(r *stateRig) {
		r.meanwhile("session.destroy", 1, func() error {
			_, err := r.HandOver(r.ctx, "s", false, func() error { return nil })
			return err
		})
	}},
	{name: "creating", slow: "session.create", quick: 1, enter: func(r *stateRig) {
		r.delete()
		r.meanwhile("session.create", 2, func() error {
			_, err := r.Sessions.CreateSession(r.ctx, declared("s"))
			return err
		})
	}},
	{name: "deleting", slow: "session.delete", enter: func(r *stateRig) {
		r.meanwhile("session.delete", 1, func() error {
			_, err := r.Sessions.DeleteSession(r.ctx, &bridgev1.DeleteSessionRequest{SessionId: "s"})
			return err
		})
	}, ends: true},
	{name: "disconnected", enter: func(r *stateRig) { r.disconnect("s") }},
	{name: "deleted", enter: func(r *stateRig) { r.delete() }, ends: true},
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
	ownTool(q)
	return q
}

// newState makes a bridge with the session "s", which has had a turn.
func newState(t *testing.T, slow string, quick int) *stateRig {
	script := fakecli.Script{Prompts: slices.Concat(hanging.Prompts, asking.Prompts), Replies: interested}
	if slow != "" {
		script.Faults = []fakecli.MethodFault{{Method: slow, After: quick,
			Fault: fakecli.Fault{Kind: fakecli.FaultDelay, DelayMS: int(slowCall.Milliseconds())}}}
	}
	r := &stateRig{keptLife: newKept(t, always(script), inTenants(quota.Limits{}), func(c *Config) { c.Raw = true })}
	if _, err := r.Sessions.CreateSession(t.Context(), declared("s")); err != nil {
		t.Fatal(err)
	}
	r.ask("s", "hi")
	return r
}

// askFor begins a turn that waits for an answer.
func (r *stateRig) askFor(prompt string) {
	r.t.Helper()
	r.begin("s", prompt)
	eventually(r.t, "the question", func() bool { return r.asked() == 1 })
}

// asked is how many callbacks of the session wait.
func (r *stateRig) asked() int {
	list, err := r.Callbacks.ListPending(r.t.Context(), &bridgev1.ListPendingRequest{SessionId: "s"})
	if err != nil {
		return -1
	}
	return len(list.GetCallbacks())
}

func (r *stateRig) unload(id string) {
	r.t.Helper()
	s, err := r.store.Open(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	if ok, err := s.Loader().Unload(r.t.Context(), 0); !ok || err != nil {
		r.t.Fatalf("the session is not unloaded: %v", err)
	}
}

func (r *stateRig) delete() {
	r.t.Helper()
	_, err := r.Sessions.DeleteSession(r.t.Context(), &bridgev1.DeleteSessionRequest{SessionId: "s"})
	if err != nil {
		r.t.Fatal(err)
	}
}

// provide gives the session credentials, which no restart keeps.
func (r *stateRig) provide() {
	r.t.Helper()
	if err := provideCredentials(r.t.Context(), r); err != nil {
		r.t.Fatal(err)
	}
}

// restart has the session restored by the next server, which has not loaded it.
func (r *stateRig) restart() {
	r.t.Helper()
	s, err := r.store.Open(r.t.Context(), "s")
	if err != nil {
		r.t.Fatal(err)
	}
	eventually(r.t, "the outbox to be empty", s.Prompts().Box().Empty)
	if err := errors.Join(s.Prompts().Box().Flush(), s.Journal().Settle(r.t.Context())); err != nil {
		r.t.Fatal(err)
	}
	r.store.Save(r.store.EntryOf(s))
	r.keptLife = r.reborn()
}

// kill ends the CLI and waits until the session knows it. The session may be in the next CLI by then.
func (r *stateRig) kill() {
	r.t.Helper()
	s, err := r.store.Open(r.t.Context(), "s")
	if err != nil {
		r.t.Fatal(err)
	}
	before, err := s.Loader().Load(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	r.life().Kill()
	eventually(r.t, "the end of the runtime", func() bool {
		if s.Snapshot().GetState() != bridgev1.SessionState_SESSION_STATE_LOADED {
			return true
		}
		now, err := s.Loader().Load(r.t.Context())
		return err == nil && now != before
	})
}

// loadSlowly has the session loaded by another caller, and waits until the CLI has the request.
func (r *stateRig) loadSlowly() {
	r.t.Helper()
	r.meanwhile("session.resume", 1, func() error {
		_, err := r.Sessions.SetModel(r.ctx, &bridgev1.SetModelRequest{SessionId: "s", ModelId: "m1"})
		if reason := fault.ReasonOf(err); reason == fault.SessionNotFound {
			return nil // the operation has ended the session
		}
		return err
	})
}

// meanwhile makes a call as another caller, and waits until the CLI has received the method for the n-th
// time for the session.
func (r *stateRig) meanwhile(method string, n int, call func() error) {
	r.t.Helper()
	r.entering.Go(func() {
		if err := call(); err != nil {
			r.t.Errorf("the call that keeps the state: %v", err)
		}
	})
	eventually(r.t, method, func() bool {
		received := 0
		for _, e := range r.life().Log() {
			if e.Kind == fakecli.EntryReceived && e.Type == method && strings.Contains(string(e.Body), `"sessionId":"s"`) {
				received++
			}
		}
		return received >= n
	})
}

// export exports the session to a slow reader, and waits until the reader has the beginning.
func (r *stateRig) export() {
	r.t.Helper()
	began := make(chan struct{})
	var once sync.Once
	r.entering.Go(func() {
		err := r.Transfers.ExportSession(r.ctx, &bridgev1.ExportSessionRequest{SessionId: "s"},
			func(*bridgev1.ExportSessionResponse) error {
				once.Do(func() {
					close(began)
					time.Sleep(slowCall)
				})
				return nil
			})
		if err != nil {
			r.t.Errorf("the export: %v", err)
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
			})
		}
	}
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
func (r *stateRig) hasEnded() {
	r.t.Helper()
	_, err := r.Sessions.ResumeSession(r.t.Context(), &bridgev1.ResumeSessionRequest{SessionId: "s"})
	if fault.ReasonOf(err) != fault.SessionNotFound {
		r.t.Errorf("a resume of the session that was deleted: %v", err)
	}
}

// reopen makes the session usable again, as a caller or another server would.
func (r *stateRig) reopen() {
	r.t.Helper()
	_, err := r.Load(r.t.Context(), "s", func() ([]backend.Request, error) { return nil, nil })
	if err != nil {
		r.t.Fatal(err)
	}
	out, err := r.Sessions.GetSession(r.t.Context(), &bridgev1.GetSessionRequest{SessionId: "s"})
	switch state := out.GetSession().GetState(); {
	case fault.ReasonOf(err) == fault.SessionNotFound, state == bridgev1.SessionState_SESSION_STATE_STORED:
		provider := &cliv1.ProviderConfig{BaseUrl: "http://127.0.0.1:1", ApiKey: proto.String("key")}
		_, err = r.Sessions.ResumeSession(r.t.Context(), &bridgev1.ResumeSessionRequest{SessionId: "s",
			Config: &cliv1.SessionConfig{Provider: provider}})
	case state == bridgev1.SessionState_SESSION_STATE_CREDENTIALS_NEEDED:
		r.provide()
	}
	if err != nil {
		r.t.Fatalf("opening the session afterwards: %v", err)
	}
}

// works fails unless an abort ends what runs, and a prompt right behind it completes.
func (r *stateRig) works(aborted bool) {
	r.t.Helper()
	if !aborted {
		if _, err := r.Sessions.Abort(r.t.Context(), &bridgev1.AbortRequest{SessionId: "s"}); err != nil {
			r.t.Fatalf("abort afterwards: %v", err)
		}
	}
	out, err := r.Turns.SendAndWait(r.t.Context(), &bridgev1.SendAndWaitRequest{SessionId: "s",
		Prompt: &bridgev1.Prompt{Text: "hi"}, Timeout: durationpb.New(operationLimit)})
	if err != nil || out.GetOutcome().GetText() != "You said: hi" {
		r.t.Fatalf("the next turn is %v, %v", out, err)
	}
	got, err := r.Sessions.GetSession(r.t.Context(), &bridgev1.GetSessionRequest{SessionId: "s"})
	if n := r.asked(); err != nil || got.GetSession().GetTurnRunning() || n != 0 {
		r.t.Errorf("after the next turn %d callbacks are pending, and the session is %v, %v", n, got, err)
	}
}
