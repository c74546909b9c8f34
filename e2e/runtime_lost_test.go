package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// TestRuntimeKilledWhileIdle: the next send finds everything as it was.
func TestRuntimeKilledWhileIdle(t *testing.T) {
	t.Parallel()
	st := newOwnStage(t, hostConfig{}, onUser("work", call("work", nil)), onResult("work", say("{{tool_result}}")))
	s := st.create(copilot.SessionOptions{Config: st.particular(), Tools: []copilot.Tool{answering("work", "done")}})
	st.say(s, "first")
	st.written(s)
	restarted := st.kill(s.ID())
	if restarted.GetTurnOutcome() != nil || restarted.GetCause() == "" {
		t.Errorf("the subscriber was told %v", restarted)
	}
	if out := st.say(s, "work"); out.GetText() != "done" {
		t.Errorf("the agent said %q", out.GetText())
	}
	wantWhole(st, "work")
	for _, ev := range st.all(s, "session.resume") {
		t.Errorf("the restart left %v in the history", ev)
	}
}

// TestRuntimeKilledInATurn: the turn is lost, and nothing else.
func TestRuntimeKilledInATurn(t *testing.T) {
	t.Parallel()
	st := newOwnStage(t, hostConfig{}, rule{When: whenUser("slow"), WaitFor: "never", Reply: steps(say("never"))})
	s := st.create(copilot.SessionOptions{Config: st.particular(), Tools: []copilot.Tool{answering("work", "done")}})
	st.say(s, "first")
	st.written(s)
	ended := st.goTurn(s, "slow")
	st.gate("never")
	restarted := st.kill(s.ID())
	lost := bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST
	if restarted.GetTurnOutcome().GetStatus() != lost {
		t.Errorf("the subscriber was told %v", restarted)
	}
	if out := ended(); out.GetStatus() != lost {
		t.Errorf("the sender was told %v", out)
	}
	st.say(s, "second")
	wantWhole(st, "work")
	if texts := strings.Join(userTexts(st), " "); !strings.Contains(texts, "first") || !strings.Contains(texts, "second") {
		t.Errorf("the model was told %q", texts)
	}
}

// TestRuntimeKilledWhileAPermissionIsPending: whoever was asked may still answer, and the
// turn goes on.
func TestRuntimeKilledWhileAPermissionIsPending(t *testing.T) {
	t.Parallel()
	st := newOwnStage(t, hostConfig{}, onUser("work", call("works", nil)), onResult("works", say("{{tool_result}}")))
	leave := newHold()
	s := st.create(copilot.SessionOptions{
		Tools: []copilot.Tool{
			copilot.NewTool("works", "Works", func(context.Context, struct{}) (string, error) { return "worked", nil }),
		},
		OnPermission: leave.permission,
	})
	st.begin(s, "work")
	id := await(st, leave.asked, "the permission request")
	st.written(s)
	st.kill(s.ID())
	if still := st.pending(s, 1)[0]; still.GetCallbackId() != id {
		t.Errorf("pending is %v, want %q", still, id)
	}
	leave.release()
	decided := st.first(s, "permission.completed")
	if ev := st.first(s, "assistant.message", copilot.After(decided.GetPosition())); ev.GetEvent().GetAssistantMessage().GetContent() != "worked" {
		t.Errorf("the agent said %v", ev)
	}
	for _, ev := range st.all(s, "session.resume") {
		if ev.GetCause() != bridgev1.EventCause_EVENT_CAUSE_BRIDGE {
			t.Errorf("%v is not said to be the bridge's own", ev)
		}
	}
	st.say(s, "and on")
}

// particular is a configuration that shows in each model request.
func (st *stage) particular() *cliv1.SessionConfig {
	config := st.config()
	config.SystemMessage = &cliv1.SystemMessageConfig{
		Mode: cliv1.SystemMessageMode_SYSTEM_MESSAGE_MODE_APPEND, Content: proto.String("Always be brief."),
	}
	config.ExcludedTools = &cliv1.StringList{Items: []string{"view"}}
	return config
}

// wantWhole checks that the newest model request shows the particular configuration, and
// offers tools.
func wantWhole(st *stage, tools ...string) {
	st.t.Helper()
	request := st.lastModelRequest()
	if !strings.Contains(request.System, "Always be brief.") {
		st.t.Error("the model was not told to be brief")
	}
	offered := names(request.Tools)
	for _, name := range tools {
		if !slices.Contains(offered, name) {
			st.t.Errorf("the model was offered %q, without %q", offered, name)
		}
	}
	if slices.Contains(offered, "view") {
		st.t.Errorf("the model was offered %q, an excluded tool included", offered)
	}
	if !request.Streaming {
		st.t.Error("streaming was lost")
	}
}

// TestRuntimeKilledInTheFirstTurn: the CLI may have written down nothing of the session yet.
func TestRuntimeKilledInTheFirstTurn(t *testing.T) {
	t.Parallel()
	st := newOwnStage(t, hostConfig{}, rule{When: whenUser("slow"), WaitFor: "never", Reply: steps(say("never"))})
	s := st.create(copilot.SessionOptions{Config: st.particular(), Tools: []copilot.Tool{answering("work", "done")}})
	ended := st.goTurn(s, "slow")
	st.gate("never")
	st.kill(s.ID())
	if out := ended(); out.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST {
		t.Errorf("the sender was told %v", out)
	}
	if out := st.say(s, "again"); out.GetText() != "You said: again" {
		t.Errorf("the agent said %q", out.GetText())
	}
	wantWhole(st, "work")
}
