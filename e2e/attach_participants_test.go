package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// answering is a tool without arguments that always says the same.
func answering(name, text string) copilot.Tool {
	return copilot.NewTool(name, "Says "+text, func(context.Context, struct{}) (string, error) { return text, nil },
		copilot.SkipPermission())
}

func TestBothClientsSeeAToolCall(t *testing.T) {
	t.Parallel()
	st := newStage(t, onUser("use it", call("it", nil)), onResult("it", say("used")))
	s := st.create(copilot.SessionOptions{Tools: []copilot.Tool{answering("it", "yes")}})
	other := st.join(s.ID(), copilot.SessionOptions{})
	turn := st.goSay(s, "use it")
	for _, client := range []*copilot.Session{s, other} {
		asked := st.first(client, "external_tool.requested").GetEvent().GetExternalToolRequested()
		done := st.first(client, "external_tool.completed").GetEvent().GetExternalToolCompleted()
		if asked.GetToolName() != "it" || asked.GetRequestId() == "" || done.GetRequestId() != asked.GetRequestId() {
			t.Errorf("requested %v, completed %v", asked, done)
		}
	}
	turn()
}

// TestOneApprovesAndBothSeeIt also has the write that was approved be made.
func TestOneApprovesAndBothSeeIt(t *testing.T) {
	t.Parallel()
	st := newStage(t, onUser("write", call("bash", shell("echo text > out.txt"))), onResult("bash", say("written")))
	s := st.create(copilot.SessionOptions{})
	other := st.join(s.ID(), copilot.SessionOptions{OnPermission: copilot.ApproveAll})
	frames := st.callbacks(s.ID())
	st.say(s, "write")
	asked := frames.requested(bridgev1.CallbackKind_CALLBACK_KIND_PERMISSION)
	if over := frames.resolved(asked.GetCallbackId()); over.GetParticipantId() != other.ParticipantID() {
		t.Errorf("answered by %q, want %q", over.GetParticipantId(), other.ParticipantID())
	}
	for _, client := range []*copilot.Session{s, other} {
		done := st.first(client, "permission.completed").GetEvent().GetPermissionCompleted()
		if done.GetRequestId() != asked.GetCallbackId() || done.GetResult().GetApproved() == nil {
			t.Errorf("completed %v", done)
		}
	}
	if got := st.read("out.txt"); got != "text\n" {
		t.Errorf("the file has %q", got)
	}
}

func TestOneRejectsAndTheFileIsUntouched(t *testing.T) {
	t.Parallel()
	st := newStage(t, onUser("spoil", call("bash", shell("echo spoilt > precious.txt"))), onResult("bash", say("{{tool_result}}")))
	st.write("precious.txt", "precious")
	s := st.create(copilot.SessionOptions{})
	other := st.join(s.ID(), copilot.SessionOptions{
		OnPermission: func(context.Context, *copilot.PermissionRequest) (*copilot.Decision, error) {
			return copilot.Reject("keep your hands off"), nil
		},
	})
	out := st.say(s, "spoil")
	if !strings.Contains(out.GetText(), "keep your hands off") {
		t.Errorf("the model was told %q", out.GetText())
	}
	for _, client := range []*copilot.Session{s, other} {
		done := st.first(client, "permission.completed").GetEvent().GetPermissionCompleted()
		if denied := done.GetResult().GetDeniedInteractivelyByUser(); denied == nil {
			t.Errorf("completed %v", done)
		}
	}
	if got := st.read("precious.txt"); got != "precious" {
		t.Errorf("the file has %q", got)
	}
}

func TestToolsOfTwoClients(t *testing.T) {
	t.Parallel()
	st := newStage(t,
		onUser("use both", call("hers", nil), call("his", nil)),
		onResult("", say("{{tool_result.hers}} and {{tool_result.his}}")),
	)
	s := st.create(copilot.SessionOptions{Tools: []copilot.Tool{answering("hers", "one")}})
	st.join(s.ID(), copilot.SessionOptions{Tools: []copilot.Tool{answering("his", "two")}})
	if out := st.say(s, "use both"); out.GetText() != "one and two" {
		t.Errorf("the agent said %q", out.GetText())
	}
	if offered := names(st.model.ModelRequests()[0].Tools); !slices.Contains(offered, "hers") || !slices.Contains(offered, "his") {
		t.Errorf("the model was offered %q", offered)
	}
}

// TestToolsLeaveWithTheirClient looks at what the model is offered half a second after a
// client has left, or was cut off without a place to come back to.
func TestToolsLeaveWithTheirClient(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(c *copilot.Client, s *copilot.Session) error{
		"leaves": func(_ *copilot.Client, s *copilot.Session) error { return s.Close() },
		"closes": func(c *copilot.Client, _ *copilot.Session) error { return c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := newStage(t)
			s := st.create(copilot.SessionOptions{Tools: []copilot.Tool{answering("stays", "here")}})
			client := st.dial()
			other, err := client.JoinSession(st.ctx, s.ID(), copilot.SessionOptions{
				Tools: []copilot.Tool{answering("goes", "there")},
			})
			if err != nil {
				t.Fatal(err)
			}
			st.say(s, "who is there?")
			if offered := names(st.lastModelRequest().Tools); !slices.Contains(offered, "goes") || !slices.Contains(offered, "stays") {
				t.Fatalf("before, the model was offered %q", offered)
			}
			if err := leave(client, other); err != nil {
				t.Fatal(err)
			}
			<-time.After(500 * time.Millisecond) // the promise
			st.say(s, "and now?")
			if offered := names(st.lastModelRequest().Tools); slices.Contains(offered, "goes") || !slices.Contains(offered, "stays") {
				t.Errorf("after, the model was offered %q", offered)
			}
		})
	}
}

func TestClientWithoutToolsLeavesThoseOfOthers(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.create(copilot.SessionOptions{Tools: []copilot.Tool{answering("mine", "me")}})
	joined := st.join(s.ID(), copilot.SessionOptions{OnPermission: copilot.ApproveAll})
	st.reopen(s.ID(), copilot.SessionOptions{OnPermission: copilot.ApproveAll})
	st.say(s, "anybody?")
	if offered := names(st.lastModelRequest().Tools); !slices.Contains(offered, "mine") {
		t.Errorf("the model was offered %q", offered)
	}
	if err := joined.Close(); err != nil {
		t.Fatal(err)
	}
	st.say(s, "still?")
	if offered := names(st.lastModelRequest().Tools); !slices.Contains(offered, "mine") {
		t.Errorf("the model was offered %q", offered)
	}
}

// TestSetTools replaces a participant's tools in the course of a session.
func TestSetTools(t *testing.T) {
	t.Parallel()
	st := newStage(t, onUser("use", call("new", nil)), onResult("new", say("{{tool_result}}")))
	s := st.create(copilot.SessionOptions{Tools: []copilot.Tool{answering("old", "before")}})
	other := st.join(s.ID(), copilot.SessionOptions{Tools: []copilot.Tool{answering("others", "x")}})
	st.say(s, "hello")
	if err := s.SetTools(st.ctx, answering("new", "after")); err != nil {
		t.Fatal(err)
	}
	if out := st.say(s, "use"); out.GetText() != "after" {
		t.Errorf("the agent said %q", out.GetText())
	}
	offered := names(st.lastModelRequest().Tools)
	if slices.Contains(offered, "old") || !slices.Contains(offered, "new") || !slices.Contains(offered, "others") {
		t.Errorf("the model was offered %q", offered)
	}
	err := other.SetTools(st.ctx, answering("others", "x"), answering("new", "mine"))
	wantField(t, err, codes.AlreadyExists, bridgev1.ErrorReason_ERROR_REASON_TOOL_NAME_CLASH, "command.set_tools.tools[0].name")
}

func TestToolNameClashIsRefused(t *testing.T) {
	t.Parallel()
	st := newStage(t, onUser("use", call("taken", nil)), onResult("taken", say("{{tool_result}}")))
	owned := answering("owned", "by the session")
	owned.OwnedBySession = true
	s := st.create(copilot.SessionOptions{Tools: []copilot.Tool{answering("taken", "the first's"), owned}})
	for _, name := range []string{"taken", "owned"} {
		_, err := st.dial().JoinSession(st.ctx, s.ID(), copilot.SessionOptions{
			Tools: []copilot.Tool{answering("free", "x"), answering(name, "the second's")},
		})
		wantField(t, err, codes.AlreadyExists, bridgev1.ErrorReason_ERROR_REASON_TOOL_NAME_CLASH, "start.tools[1].name")
	}
	now, err := s.Get(st.ctx)
	if err != nil || len(now.GetParticipants()) != 1 {
		t.Errorf("participants %v, %v", now.GetParticipants(), err)
	}
	if out := st.say(s, "use"); out.GetText() != "the first's" {
		t.Errorf("the agent said %q", out.GetText())
	}
}

// TestParticipantsAreTold has sessions and streams tell who is there.
func TestParticipantsAreTold(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.create(copilot.SessionOptions{Name: "the maker", Tools: []copilot.Tool{answering("hammer", "x")}})
	other := st.join(s.ID(), copilot.SessionOptions{Name: "the guest"})
	now, err := s.Get(st.ctx)
	if err != nil {
		t.Fatal(err)
	}
	got := now.GetParticipants()
	if len(got) != 2 || got[0].GetName() != "the maker" || !slices.Equal(got[0].GetTools(), []string{"hammer"}) ||
		got[1].GetName() != "the guest" || got[1].GetParticipantId() != other.ParticipantID() || !got[1].GetConnected() {
		t.Errorf("participants %v", got)
	}
}

// TestTurnOutlivesItsSender: the one who sent leaves, the turn goes on.
func TestTurnOutlivesItsSender(t *testing.T) {
	t.Parallel()
	st := newStage(t, offlinemodel.Rule{
		When: offlinemodel.When{User: "slow"}, WaitFor: "later", Reply: []offlinemodel.Step{say("at last")},
	})
	s := st.create(copilot.SessionOptions{})
	sender := st.join(s.ID(), copilot.SessionOptions{})
	if _, err := sender.Send(st.ctx, "slow"); err != nil {
		t.Fatal(err)
	}
	st.gate("later")
	if err := sender.Close(); err != nil {
		t.Fatal(err)
	}
	st.model.Release("later")
	if ev := st.first(s, "assistant.message"); ev.GetEvent().GetAssistantMessage().GetContent() != "at last" {
		t.Errorf("the turn said %v", ev)
	}
}
