package runtime

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// TestRuntimeKilledWhileIdle: the next send finds everything as it was.
func TestRuntimeKilledWhileIdle(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{}, harness.OnUser("work", harness.Call("work", nil)),
		harness.OnResult("work", harness.Say("{{tool_result}}")))
	s := st.Create(copilot.SessionOptions{Config: particular(st),
		Tools: []copilot.Tool{harness.Answering("work", "done")}})
	st.Say(s, "first")
	st.Written(s)
	restarted := st.Kill(s.ID())
	if restarted.GetTurnOutcome() != nil || restarted.GetCause() == "" {
		t.Errorf("the subscriber was told %v", restarted)
	}
	if out := st.Say(s, "work"); out.Text() != "done" {
		t.Errorf("the agent said %q", out.Text())
	}
	wantWhole(st, "work")
	for _, ev := range st.All(s, "session.resume") {
		t.Errorf("the restart left %v in the history", ev)
	}
}

// TestRuntimeKilledInATurn: the turn is lost, and nothing else.
func TestRuntimeKilledInATurn(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{},
		harness.Rule{When: harness.WhenUser("slow"), WaitFor: "never", Reply: harness.Steps(harness.Say("never"))})
	s := st.Create(copilot.SessionOptions{Config: particular(st),
		Tools: []copilot.Tool{harness.Answering("work", "done")}})
	st.Say(s, "first")
	st.Written(s)
	ended := st.GoTurn(s, "slow")
	st.Gate("never")
	restarted := st.Kill(s.ID())
	if restarted.GetTurnOutcome().GetStatus() != bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST {
		t.Errorf("the subscriber was told %v", restarted)
	}
	if out := ended(); out.Status() != copilot.TurnRuntimeLost {
		t.Errorf("the sender was told %v", out)
	}
	st.Say(s, "second")
	wantWhole(st, "work")
	if texts := strings.Join(harness.UserTexts(st), " "); !strings.Contains(texts, "first") ||
		!strings.Contains(texts, "second") {
		t.Errorf("the model was told %q", texts)
	}
}

// TestRuntimeKilledWhileAPermissionIsPending: the participant may still answer, and the turn goes on.
func TestRuntimeKilledWhileAPermissionIsPending(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{}, harness.OnUser("work", harness.Call("works", nil)),
		harness.OnResult("works", harness.Say("{{tool_result}}")))
	leave := harness.NewHold()
	s := st.Create(copilot.SessionOptions{
		Tools: []copilot.Tool{
			copilot.NewTool("works", "Works", func(context.Context, struct{}) (string, error) { return "worked", nil }),
		},
		OnPermission: leave.Permission,
	})
	st.Begin(s, "work")
	id := harness.Await(st, leave.Asked, "the permission request")
	st.Written(s)
	st.Kill(s.ID())
	if still := st.Pending(s, 1)[0]; still.GetCallbackId() != id {
		t.Errorf("pending is %v, want %q", still, id)
	}
	leave.Release()
	decided := st.First(s, "permission.completed")
	if ev := st.First(s, "assistant.message",
		copilot.After(decided.GetPosition())); ev.GetEvent().GetAssistantMessage().GetContent() != "worked" {
		t.Errorf("the agent said %v", ev)
	}
	for _, ev := range st.All(s, "session.resume") {
		if ev.GetCause() != bridgev1.EventCause_EVENT_CAUSE_BRIDGE {
			t.Errorf("%v is not said to be the bridge's own", ev)
		}
	}
	st.Say(s, "and on")
}

// particular is a configuration that shows in each model request.
func particular(st *harness.Scripted) *cliv1.SessionConfig {
	config := st.Config()
	config.SystemMessage = &cliv1.SystemMessageConfig{
		Mode: cliv1.SystemMessageMode_SYSTEM_MESSAGE_MODE_APPEND, Content: proto.String("Always be brief."),
	}
	config.ExcludedTools = &cliv1.StringList{Items: []string{"view"}}
	return config
}

// wantWhole checks that the newest model request shows the particular configuration, and
// offers tools.
func wantWhole(st *harness.Scripted, tools ...string) {
	st.T.Helper()
	request := st.LastModelRequest()
	if !strings.Contains(request.System, "Always be brief.") {
		st.T.Error("the model was not told to be brief")
	}
	offered := harness.Names(request.Tools)
	for _, name := range tools {
		if !slices.Contains(offered, name) {
			st.T.Errorf("the model was offered %q, without %q", offered, name)
		}
	}
	if slices.Contains(offered, "view") {
		st.T.Errorf("the model was offered %q, an excluded tool included", offered)
	}
	if !request.Streaming {
		st.T.Error("streaming was lost")
	}
}

// TestAbortAfterTheRuntimeWasKilled: the turn's tool calls are pending when the CLI is killed, and the session is
// being loaded again when it is aborted. One abort ends them, and the next prompt does not wait for them.
func TestAbortAfterTheRuntimeWasKilled(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{},
		harness.OnUser("work", harness.Call("works", nil), harness.Call("works", nil), harness.Call("works", nil)))
	skip := true
	config := particular(st)
	config.Tools = []*cliv1.ToolDefinition{{Name: "works", Description: "Works", SkipPermission: &skip}}
	s := st.Create(copilot.SessionOptions{Config: config})
	st.Say(s, "first")
	st.Begin(s, "work")
	st.Pending(s, 3)
	(&harness.TestSession{Session: s, Fixture: st.Fixture}).RecordedTypes("tool.execution_start") // behind the calls
	st.Kill(s.ID())
	if running, err := s.Abort(st.Ctx); err != nil || !running {
		t.Errorf("the abort ended a turn: %v, %v", running, err)
	}
	st.Eventually("the end of the tool calls", func() bool {
		list, err := s.Pending(st.Ctx)
		return err == nil && len(list) == 0
	})
	if out := st.Say(s, "again"); out.Text() != "You said: again" {
		t.Errorf("the agent said %v", out)
	}
}

// TestAbortedPermissionStaysEnded: the CLI is killed while a permission is pending, and the next process has the turn aborted. Older
// versions wait for that permission again in each later process.
func TestAbortedPermissionStaysEnded(t *testing.T) {
	t.Parallel()
	st, s := asking(t)
	st.Say(s, "first")
	st.Begin(s, "touch")
	st.Pending(s, 1)
	recorded(st, st.Host.Home, s.ID(), "permission.requested", 1)
	st.Kill(s.ID())
	st.Pending(s, 1)
	if running, err := s.Abort(st.Ctx); err != nil || !running {
		t.Errorf("the abort ended a turn: %v, %v", running, err)
	}
	recorded(st, st.Host.Home, s.ID(), "abort", 1)
	for _, prompt := range []string{"second", "third"} {
		st.Kill(s.ID())
		if out := st.Say(s, prompt); out.Text() != "You said: "+prompt {
			t.Errorf("the agent said %v", out)
		}
		if list, err := s.Pending(st.Ctx); err != nil || len(list) > 0 {
			t.Errorf("pending are %v, %v", list, err)
		}
	}
}

// TestRuntimeKilledInTheFirstTurn: the CLI may have written down nothing of the session yet.
func TestRuntimeKilledInTheFirstTurn(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{},
		harness.Rule{When: harness.WhenUser("slow"), WaitFor: "never", Reply: harness.Steps(harness.Say("never"))})
	s := st.Create(copilot.SessionOptions{Config: particular(st),
		Tools: []copilot.Tool{harness.Answering("work", "done")}})
	ended := st.GoTurn(s, "slow")
	st.Gate("never")
	st.Kill(s.ID())
	if out := ended(); out.Status() != copilot.TurnRuntimeLost {
		t.Errorf("the sender was told %v", out)
	}
	if out := st.Say(s, "again"); out.Text() != "You said: again" {
		t.Errorf("the agent said %q", out.Text())
	}
	wantWhole(st, "work")
}
