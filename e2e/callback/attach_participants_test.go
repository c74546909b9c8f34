package callback

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

func TestBothClientsSeeAToolCall(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, harness.OnUser("use it", harness.Call("it", nil)),
		harness.OnResult("it", harness.Say("used")))
	s := st.Create(copilot.SessionOptions{Tools: []copilot.Tool{harness.Answering("it", "yes")}})
	other := st.Join(s.ID(), copilot.SessionOptions{})
	turn := st.GoSay(s, "use it")
	for _, client := range []*copilot.Session{s, other} {
		asked := st.First(client, "external_tool.requested").GetEvent().GetExternalToolRequested()
		done := st.First(client, "external_tool.completed").GetEvent().GetExternalToolCompleted()
		if asked.GetToolName() != "it" || asked.GetRequestId() == "" || done.GetRequestId() != asked.GetRequestId() {
			t.Errorf("requested %v, completed %v", asked, done)
		}
	}
	turn()
}

// TestOneApprovesAndBothSeeIt also has the write that was approved be made.
func TestOneApprovesAndBothSeeIt(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, harness.OnUser("write", harness.Call("bash", harness.Shell("echo text > out.txt"))),
		harness.OnResult("bash", harness.Say("written")))
	s := st.Create(copilot.SessionOptions{})
	other := st.Join(s.ID(), copilot.SessionOptions{OnPermission: copilot.ApproveAll})
	frames := st.Callbacks(s.ID())
	st.Say(s, "write")
	asked := frames.Requested(bridgev1.CallbackKind_CALLBACK_KIND_PERMISSION)
	if over := frames.Resolved(asked.GetCallbackId()); over.GetParticipantId() != other.ParticipantID() {
		t.Errorf("answered by %q, want %q", over.GetParticipantId(), other.ParticipantID())
	}
	for _, client := range []*copilot.Session{s, other} {
		done := st.First(client, "permission.completed").GetEvent().GetPermissionCompleted()
		if done.GetRequestId() != asked.GetCallbackId() || done.GetResult().GetApproved() == nil {
			t.Errorf("completed %v", done)
		}
	}
	if got := st.Read("out.txt"); got != "text\n" {
		t.Errorf("the file has %q", got)
	}
}

func TestOneRejectsAndTheFileIsUntouched(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t,
		harness.OnUser("spoil", harness.Call("bash", harness.Shell("echo spoilt > precious.txt"))),
		harness.OnResult("bash", harness.Say("{{tool_result}}")))
	st.Write("precious.txt", "precious")
	s := st.Create(copilot.SessionOptions{})
	other := st.Join(s.ID(), copilot.SessionOptions{
		OnPermission: func(context.Context, *copilot.PermissionRequest) (*copilot.Decision, error) {
			return copilot.Reject("keep your hands off"), nil
		},
	})
	out := st.Say(s, "spoil")
	if !strings.Contains(out.Text(), "keep your hands off") {
		t.Errorf("the model was told %q", out.Text())
	}
	for _, client := range []*copilot.Session{s, other} {
		done := st.First(client, "permission.completed").GetEvent().GetPermissionCompleted()
		if denied := done.GetResult().GetDeniedInteractivelyByUser(); denied == nil {
			t.Errorf("completed %v", done)
		}
	}
	if got := st.Read("precious.txt"); got != "precious" {
		t.Errorf("the file has %q", got)
	}
}

func TestToolsOfTwoClients(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t,
		harness.OnUser("use both", harness.Call("hers", nil), harness.Call("his", nil)),
		harness.OnResult("", harness.Say("{{tool_result.hers}} and {{tool_result.his}}")),
	)
	s := st.Create(copilot.SessionOptions{Tools: []copilot.Tool{harness.Answering("hers", "one")}})
	st.Join(s.ID(), copilot.SessionOptions{Tools: []copilot.Tool{harness.Answering("his", "two")}})
	if out := st.Say(s, "use both"); out.Text() != "one and two" {
		t.Errorf("the agent said %q", out.Text())
	}
	if offered := harness.Names(st.Model.ModelRequests()[0].Tools); !slices.Contains(offered, "hers") ||
		!slices.Contains(offered, "his") {
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
			st := harness.NewScripted(t)
			s := st.Create(copilot.SessionOptions{Tools: []copilot.Tool{harness.Answering("stays", "here")}})
			client := st.Dial()
			other, err := client.JoinSession(st.Ctx, s.ID(), copilot.SessionOptions{
				Tools: []copilot.Tool{harness.Answering("goes", "there")},
			})
			if err != nil {
				t.Fatal(err)
			}
			st.Say(s, "who is there?")
			if offered := harness.Names(st.LastModelRequest().Tools); !slices.Contains(offered, "goes") ||
				!slices.Contains(offered, "stays") {
				t.Fatalf("before, the model was offered %q", offered)
			}
			if err := leave(client, other); err != nil {
				t.Fatal(err)
			}
			<-time.After(500 * time.Millisecond) // the promise
			st.Say(s, "and now?")
			if offered := harness.Names(st.LastModelRequest().Tools); slices.Contains(offered, "goes") ||
				!slices.Contains(offered, "stays") {
				t.Errorf("after, the model was offered %q", offered)
			}
		})
	}
}

func TestClientWithoutToolsLeavesThoseOfOthers(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	s := st.Create(copilot.SessionOptions{Tools: []copilot.Tool{harness.Answering("mine", "me")}})
	joined := st.Join(s.ID(), copilot.SessionOptions{OnPermission: copilot.ApproveAll})
	st.Reopen(s.ID(), copilot.SessionOptions{OnPermission: copilot.ApproveAll})
	st.Say(s, "anybody?")
	if offered := harness.Names(st.LastModelRequest().Tools); !slices.Contains(offered, "mine") {
		t.Errorf("the model was offered %q", offered)
	}
	if err := joined.Close(); err != nil {
		t.Fatal(err)
	}
	st.Say(s, "still?")
	if offered := harness.Names(st.LastModelRequest().Tools); !slices.Contains(offered, "mine") {
		t.Errorf("the model was offered %q", offered)
	}
}

// TestSetTools replaces a participant's tools in the course of a session.
func TestSetTools(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, harness.OnUser("use", harness.Call("new", nil)),
		harness.OnResult("new", harness.Say("{{tool_result}}")))
	s := st.Create(copilot.SessionOptions{Tools: []copilot.Tool{harness.Answering("old", "before")}})
	other := st.Join(s.ID(), copilot.SessionOptions{Tools: []copilot.Tool{harness.Answering("others", "x")}})
	st.Say(s, "hello")
	if err := s.SetTools(st.Ctx, harness.Answering("new", "after")); err != nil {
		t.Fatal(err)
	}
	if out := st.Say(s, "use"); out.Text() != "after" {
		t.Errorf("the agent said %q", out.Text())
	}
	offered := harness.Names(st.LastModelRequest().Tools)
	if slices.Contains(offered, "old") || !slices.Contains(offered, "new") || !slices.Contains(offered, "others") {
		t.Errorf("the model was offered %q", offered)
	}
	err := other.SetTools(st.Ctx, harness.Answering("others", "x"), harness.Answering("new", "mine"))
	harness.WantField(t, err, codes.AlreadyExists, bridgev1.ErrorReason_ERROR_REASON_TOOL_NAME_CONFLICT,
		"command.set_tools.tools[0].name")
}

func TestToolNameConflictIsRefused(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, harness.OnUser("use", harness.Call("taken", nil)),
		harness.OnResult("taken", harness.Say("{{tool_result}}")))
	owned := harness.Answering("owned", "by the session")
	owned.OwnedBySession = true
	s := st.Create(copilot.SessionOptions{Tools: []copilot.Tool{harness.Answering("taken", "the first's"), owned}})
	for _, name := range []string{"taken", "owned"} {
		_, err := st.Dial().JoinSession(st.Ctx, s.ID(), copilot.SessionOptions{
			Tools: []copilot.Tool{harness.Answering("free", "x"), harness.Answering(name, "the second's")},
		})
		harness.WantField(t, err, codes.AlreadyExists, bridgev1.ErrorReason_ERROR_REASON_TOOL_NAME_CONFLICT,
			"start.tools[1].name")
	}
	now, err := s.Get(st.Ctx)
	if err != nil || len(now.Proto.GetParticipants()) != 1 {
		t.Errorf("participants %v, %v", now.Proto.GetParticipants(), err)
	}
	if out := st.Say(s, "use"); out.Text() != "the first's" {
		t.Errorf("the agent said %q", out.Text())
	}
}

// TestParticipantsAreTold has sessions and streams tell who is there.
func TestParticipantsAreTold(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	s := st.Create(copilot.SessionOptions{Name: "the maker", Tools: []copilot.Tool{harness.Answering("hammer", "x")}})
	other := st.Join(s.ID(), copilot.SessionOptions{Name: "the guest"})
	now, err := s.Get(st.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	got := now.Proto.GetParticipants()
	if len(got) != 2 || got[0].GetName() != "the maker" || !slices.Equal(got[0].GetTools(), []string{"hammer"}) ||
		got[1].GetName() != "the guest" || got[1].GetParticipantId() != other.ParticipantID() ||
		!got[1].GetConnected() {
		t.Errorf("participants %v", got)
	}
}

// TestTurnOutlivesItsSender: the one who sent leaves, the turn goes on.
func TestTurnOutlivesItsSender(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, offlinemodel.Rule{
		When: offlinemodel.When{User: "slow"}, WaitFor: "later", Reply: []offlinemodel.Step{harness.Say("at last")},
	})
	s := st.Create(copilot.SessionOptions{})
	sender := st.Join(s.ID(), copilot.SessionOptions{})
	if _, err := sender.Send(st.Ctx, "slow"); err != nil {
		t.Fatal(err)
	}
	st.Gate("later")
	if err := sender.Close(); err != nil {
		t.Fatal(err)
	}
	st.Model.Release("later")
	if ev := st.First(s, "assistant.message"); ev.GetEvent().GetAssistantMessage().GetContent() != "at last" {
		t.Errorf("the turn said %v", ev)
	}
}
