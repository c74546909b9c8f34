package bridge

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// The states of a session in which callers meet it. Each function puts a new session into the state. In the states
// that are slow, the CLI takes slowResume to resume the session, so that the operation arrives meanwhile.
var sessionStates = []struct {
	name  string
	slow  bool
	enter func(r *lives)
}{
	{name: "idle", enter: func(*lives) {}},
	{name: "turn", enter: func(r *lives) { r.begin("s", "long") }},
	{name: "asking", enter: func(r *lives) { r.askTool() }},
	{name: "unloaded", enter: func(r *lives) { r.unload("s") }},
	{name: "reloading", slow: true, enter: func(r *lives) {
		r.unload("s")
		r.loadSlowly()
	}},
	{name: "lost", enter: func(r *lives) { r.kill() }},
	{name: "lost in a turn", enter: func(r *lives) {
		r.begin("s", "long")
		r.kill()
	}},
	{name: "lost asking", enter: func(r *lives) {
		r.askTool()
		r.kill()
	}},
	{name: "resuming, lost in a turn", slow: true, enter: func(r *lives) {
		r.begin("s", "long")
		r.kill()
		r.loadSlowly()
	}},
	{name: "resuming, lost asking", slow: true, enter: func(r *lives) {
		r.askTool()
		r.kill()
		r.loadSlowly()
	}},
	{name: "disconnected", enter: func(r *lives) { r.disconnect("s") }},
	{name: "deleted", enter: func(r *lives) {
		if _, err := r.Sessions.DeleteSession(r.t.Context(), &bridgev1.DeleteSessionRequest{SessionId: "s"}); err != nil {
			r.t.Fatal(err)
		}
	}},
}

// slowResume is how long the CLI takes to resume a session, and operationLimit how long an operation may take.
const (
	slowResume     = 300 * time.Millisecond
	operationLimit = 20 * time.Second
)

// The operations, with the result in each state where it is not "ok". Results that are possible have | between them.
var sessionOperations = []struct {
	name   string
	do     func(ctx context.Context, r *lives) error
	except map[string]string
}{
	{"Send", func(ctx context.Context, r *lives) error {
		_, err := r.Turns.Send(ctx, &bridgev1.SendRequest{SessionId: "s", Prompt: &bridgev1.Prompt{Text: "hi"}})
		return err
	}, gone},
	{"Send immediate", func(ctx context.Context, r *lives) error {
		_, err := r.Turns.Send(ctx, &bridgev1.SendRequest{SessionId: "s",
			Prompt: &bridgev1.Prompt{Text: "hi", Mode: cliv1.SendMode_SEND_MODE_IMMEDIATE}})
		return err
	}, gone},
	{"SendAndWait", func(ctx context.Context, r *lives) error {
		out, err := r.Turns.SendAndWait(ctx, &bridgev1.SendAndWaitRequest{SessionId: "s",
			Prompt: &bridgev1.Prompt{Text: "hi"}, Timeout: durationpb.New(2 * slowResume)})
		if s := out.GetOutcome().GetStatus(); err == nil && s != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
			return errors.New(s.String())
		}
		return err
	}, with(gone, "turn", timedOut, "asking", timedOut, "lost asking", timedOut, "resuming, lost asking", timedOut)},
	{"Abort", func(ctx context.Context, r *lives) error {
		out, err := r.Sessions.Abort(ctx, &bridgev1.AbortRequest{SessionId: "s"})
		if err == nil && out.GetTurnWasRunning() {
			return errors.New(turnEnded)
		}
		return err
	}, with(gone, "turn", turnEnded, "asking", turnEnded, "lost asking", turnEnded, "resuming, lost asking", turnEnded)},
	{"Resolve", func(ctx context.Context, r *lives) error {
		return r.answer(ctx, toolText("x"))
	}, noneAsked},
	{"Abstain", func(ctx context.Context, r *lives) error {
		return r.answer(ctx, &bridgev1.Answer{Answer: &bridgev1.Answer_Abstain{Abstain: &bridgev1.Abstain{}}})
	}, noneAsked},
	{"ListEvents", func(ctx context.Context, r *lives) error {
		_, err := r.Events.ListEvents(ctx, &bridgev1.ListEventsRequest{SessionId: "s"})
		return err
	}, gone},
	{"ExportSession", func(ctx context.Context, r *lives) error {
		return r.Transfers.ExportSession(ctx, &bridgev1.ExportSessionRequest{SessionId: "s"},
			func(*bridgev1.ExportSessionResponse) error { return nil })
	}, map[string]string{"turn": busy, "asking": busy, "reloading": okOrBusy, "lost in a turn": okOrBusy,
		"lost asking": busy, "resuming, lost in a turn": okOrBusy, "resuming, lost asking": busy, "deleted": notFound}},
	{"SetModel", func(ctx context.Context, r *lives) error {
		_, err := r.Sessions.SetModel(ctx, &bridgev1.SetModelRequest{SessionId: "s", ModelId: "m2"})
		return err
	}, gone},
	{"UpdateLabels", func(ctx context.Context, r *lives) error {
		_, err := r.Sessions.UpdateLabels(ctx, &bridgev1.UpdateLabelsRequest{SessionId: "s",
			Set: map[string]string{"a": "b"}})
		return err
	}, gone},
	{"GetSession", func(ctx context.Context, r *lives) error {
		_, err := r.Sessions.GetSession(ctx, &bridgev1.GetSessionRequest{SessionId: "s"})
		return err
	}, gone},
	{"ResumeSession", func(ctx context.Context, r *lives) error {
		_, err := r.Sessions.ResumeSession(ctx, &bridgev1.ResumeSessionRequest{SessionId: "s"})
		return err
	}, map[string]string{"deleted": notFound}},
	{"DisconnectSession", func(ctx context.Context, r *lives) error {
		_, err := r.Sessions.DisconnectSession(ctx, &bridgev1.DisconnectSessionRequest{SessionId: "s"})
		return err
	}, map[string]string{"deleted": notFound}},
	{"DeleteSession", func(ctx context.Context, r *lives) error {
		_, err := r.Sessions.DeleteSession(ctx, &bridgev1.DeleteSessionRequest{SessionId: "s"})
		return err
	}, map[string]string{"deleted": notFound}},
	{"a call of the CLI", func(_ context.Context, r *lives) error {
		_, err := invokeCLI(r.rig, "session.metadata.activity", &cliv1.SessionMetadataServiceActivityRequest{SessionId: "s"},
			&cliv1.SessionMetadataServiceActivityResponse{}, false, "")
		return err
	}, gone},
}

// Results other than "ok".
const (
	notFound   = "SESSION_NOT_FOUND"
	noCallback = "CALLBACK_NOT_FOUND"
	busy       = "SESSION_BUSY"
	okOrBusy   = "ok|" + busy // a load may be in progress
	timedOut   = "TURN_STATUS_TIMED_OUT"
	turnEnded  = "the call says that it has ended a turn"
)

// gone are the results of operations that need an open session.
var gone = map[string]string{"disconnected": notFound, "deleted": notFound}

// noneAsked are the results of answers, for which a callback must wait.
var noneAsked = with(gone, "idle", noCallback, "turn", noCallback, "unloaded", noCallback, "reloading", noCallback,
	"lost", noCallback, "lost in a turn", noCallback, "resuming, lost in a turn", noCallback)

// with adds results to a table.
func with(table map[string]string, pairs ...string) map[string]string {
	out := map[string]string{}
	for state, result := range table {
		out[state] = result
	}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

func toolText(text string) *bridgev1.Answer {
	return &bridgev1.Answer{Answer: &bridgev1.Answer_Tool{Tool: &bridgev1.ToolAnswer{
		Outcome: &bridgev1.ToolAnswer_Text{Text: text}}}}
}

// answer answers the callback that waits, or an unknown one if none does.
func (r *lives) answer(ctx context.Context, answer *bridgev1.Answer) error {
	list, err := r.Callbacks.ListPending(ctx, &bridgev1.ListPendingRequest{SessionId: "s"})
	if err != nil {
		return err
	}
	id := "none"
	if len(list.GetCallbacks()) > 0 {
		id = list.GetCallbacks()[0].GetCallbackId()
	}
	_, err = r.Callbacks.Resolve(ctx, &bridgev1.ResolveRequest{SessionId: "s", CallbackId: id, Answer: answer})
	return err
}

// askTool begins a turn whose tool call waits for an answer.
func (r *lives) askTool() {
	r.t.Helper()
	r.begin("s", "tool")
	eventually(r.t, "the tool call", func() bool { return r.asked() == 1 })
}

// asked is how many callbacks of the session wait.
func (r *lives) asked() int {
	list, err := r.Callbacks.ListPending(r.t.Context(), &bridgev1.ListPendingRequest{SessionId: "s"})
	if err != nil {
		return -1
	}
	return len(list.GetCallbacks())
}

func (r *lives) unload(id string) {
	r.t.Helper()
	s, err := r.store.Open(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	if ok, err := s.Loader().Unload(r.t.Context(), 0); !ok || err != nil {
		r.t.Fatalf("the session is not unloaded: %v", err)
	}
}

// kill ends the CLI and waits until the session knows it.
func (r *lives) kill() {
	r.t.Helper()
	r.life().Kill()
	eventually(r.t, "the end of the runtime", func() bool {
		s, err := r.store.Open(r.t.Context(), "s")
		return err == nil && s.Snapshot().GetState() != bridgev1.SessionState_SESSION_STATE_LOADED || r.count() > 1
	})
}

// loadSlowly has the session loaded by another caller, and waits until the CLI has the request.
func (r *lives) loadSlowly() {
	r.t.Helper()
	r.streams.Go(func() {
		_, _ = r.Sessions.SetModel(r.ctx, &bridgev1.SetModelRequest{SessionId: "s", ModelId: "m1"})
	})
	eventually(r.t, "a resume", func() bool {
		return slices.ContainsFunc(r.life().Log(), func(e fakecli.Entry) bool {
			return e.Kind == fakecli.EntryReceived && e.Type == "session.resume"
		})
	})
}

// TestOperationsInStates performs each operation in each state. It ends within its limit with the result of the table.
// Whatever it was, the session works afterwards: an abort leaves no callback and no turn, also if no runtime had the
// session when it came, and the next prompt completes.
func TestOperationsInStates(t *testing.T) {
	t.Parallel()
	for _, state := range sessionStates {
		for _, op := range sessionOperations {
			t.Run(fmt.Sprintf("%s/%s", op.name, state.name), func(t *testing.T) {
				t.Parallel()
				script := hanging
				if state.slow {
					script.Faults = []fakecli.MethodFault{{Method: "session.resume",
						Fault: fakecli.Fault{Kind: fakecli.FaultDelay, DelayMS: int(slowResume.Milliseconds())}}}
				}
				r := newLives(t, always(script), func(c *Config) { c.Raw = true })
				r.create("s", ownTool)
				r.ask("s", "hi")
				state.enter(r)

				ctx, cancel := context.WithTimeout(t.Context(), operationLimit)
				defer cancel()
				want := "ok"
				if w := op.except[state.name]; w != "" {
					want = w
				}
				if got := resultOf(op.do(ctx, r)); !slices.Contains(strings.Split(want, "|"), got) {
					t.Errorf("%s, want %s", got, want)
				}
				r.works(op.name, state.name)
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

// works fails unless the session still works after an operation in a state, or has ended by it.
func (r *lives) works(op, state string) {
	r.t.Helper()
	ended := op == "DeleteSession" || state == "deleted"
	if ended {
		return
	}
	if op == "DisconnectSession" || state == "disconnected" {
		if _, err := r.Sessions.ResumeSession(r.t.Context(), &bridgev1.ResumeSessionRequest{SessionId: "s"}); err != nil {
			r.t.Fatalf("resume afterwards: %v", err)
		}
	}
	if op != "Abort" {
		if _, err := r.Sessions.Abort(r.t.Context(), &bridgev1.AbortRequest{SessionId: "s"}); err != nil {
			r.t.Fatalf("abort afterwards: %v", err)
		}
	}
	eventually(r.t, "the end of what was aborted", func() bool {
		out, err := r.Sessions.GetSession(r.t.Context(), &bridgev1.GetSessionRequest{SessionId: "s"})
		return err == nil && !out.GetSession().GetTurnRunning() && r.asked() == 0
	})
	if out := r.ask("s", "hi"); out.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
		r.t.Errorf("the next turn is %v", out)
	}
}
