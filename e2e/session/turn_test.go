package session

import (
	"context"
	"fmt"
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

func TestAbortDuringShellTool(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, harness.OnUser("sleep", harness.Call("bash", harness.Shell("touch begun; sleep 300; "+
		"touch ended"))))
	s := st.Create(copilot.SessionOptions{OnPermission: copilot.ApproveAll})
	ended := st.GoTurn(s, "sleep")
	st.First(s, "permission.completed")
	running, err := s.Abort(st.Ctx)
	if err != nil || !running {
		t.Fatalf("abort: running %v, %v", running, err)
	}
	if out := ended(); out.Status() != copilot.TurnAborted {
		t.Errorf("the turn ended as %v", out)
	}
	if len(st.All(s, "abort")) != 1 {
		t.Error("the journal has no abort event")
	}
	if types := (&harness.TestSession{Session: s, Fixture: st.Fixture}).RecordedTypes(); !slices.Contains(types,
		"abort") {
		t.Errorf("the CLI's record has %q", types)
	}
	if out := st.Say(s, "still there?"); out.Text() != "You said: still there?" {
		t.Errorf("after the abort the agent said %q", out.Text())
	}
	if st.Exists("ended") {
		t.Error("the command went on")
	}
	if running, err := s.Abort(st.Ctx); err != nil || running {
		t.Errorf("abort without a turn: running %v, %v", running, err)
	}
}

func TestAbortOfAStreamingTurn(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, harness.OnUser("talk", harness.Say("I begin"), offlinemodel.Step{Hang: true}))
	s := st.Create(copilot.SessionOptions{})
	ended := st.GoTurn(s, "talk")
	st.First(s, "assistant.message_delta")
	if running, err := s.Abort(st.Ctx); err != nil || !running {
		t.Fatalf("abort: running %v, %v", running, err)
	}
	if out := ended(); out.Status() != copilot.TurnAborted {
		t.Errorf("the turn ended as %v", out)
	}
	gone := func(r *offlinemodel.Request) bool { return r.Outcome == offlinemodel.OutcomeClientGone }
	if _, err := st.Model.WaitRequest(st.Ctx, gone); err != nil {
		t.Errorf("the model is still being listened to: %v", err)
	}
	st.Say(s, "go on")
}

func TestSendAndWaitCompletes(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	s := st.Create(copilot.SessionOptions{})
	out := st.Say(s, "hello")
	if out.Text() != "You said: hello" || out.MessageID == "" {
		t.Errorf("outcome %v", out)
	}
	message, err := s.ReadEvent(st.Ctx, out.Proto.GetMessagePosition())
	if err != nil || !strings.Contains(string(message), "You said: hello") {
		t.Errorf("at the message's position is %s, %v", message, err)
	}
	end, err := s.ReadEvent(st.Ctx, out.Proto.GetEndPosition())
	if err != nil || !strings.Contains(string(end), `"session.idle"`) {
		t.Errorf("at the end's position is %s, %v", end, err)
	}
}

// TestSendAndWaitFails has the model refuse: that is an outcome and no error of the call.
func TestSendAndWaitFails(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, offlinemodel.Rule{
		When:  offlinemodel.When{User: "too much"},
		Error: &offlinemodel.Failure{Status: 400, Message: "this model takes no such thing", Code: "bad_request"},
	})
	s := st.Create(copilot.SessionOptions{})
	out := st.GoTurn(s, "too much")()
	if out.Status() != copilot.TurnFailed || out.Text() != "" {
		t.Fatalf("the turn ended as %v", out)
	}
	te := out.Error()
	if te.GetErrorType() == "" || te.GetStatusCode() != 400 ||
		!strings.Contains(te.GetMessage(), "takes no such thing") {
		t.Errorf("its error is %v", te)
	}
	text, err := s.ReadEvent(st.Ctx, te.GetPosition())
	if err != nil || !strings.Contains(string(text), `"session.error"`) {
		t.Errorf("at the error's position is %s, %v", text, err)
	}
	st.Say(s, "less then")
}

// TestSendAndWaitWithoutMessage has a turn that ends with nothing said.
func TestSendAndWaitWithoutMessage(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, harness.OnUser("hush", offlinemodel.Step{Reasoning: "better say nothing"}))
	s := st.Create(copilot.SessionOptions{})
	out := st.Say(s, "hush")
	if out.Text() != "" {
		t.Errorf("the agent said %q", out.Text())
	}
	st.Say(s, "speak")
}

// TestSendAndWaitTimeouts: neither of them ends the turn.
func TestSendAndWaitTimeouts(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]copilot.SendOption{
		"idle":  copilot.WithIdleTimeout(300 * time.Millisecond),
		"whole": copilot.WithTimeout(300 * time.Millisecond),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := harness.NewScripted(t, offlinemodel.Rule{
				When: offlinemodel.When{User: "slow"}, WaitFor: "later",
				Reply: []offlinemodel.Step{harness.Say("at last")},
			})
			s := st.Create(copilot.SessionOptions{})
			out := st.GoTurn(s, "slow", limit)()
			if out.Status() != copilot.TurnTimedOut {
				t.Fatalf("the turn ended as %v", out)
			}
			now, err := s.Get(st.Ctx)
			if err != nil || !now.Proto.GetTurnRunning() {
				t.Errorf("the turn does not go on: %v, %v", now, err)
			}
			st.Model.Release("later")
			st.First(s, "session.idle", copilot.After(out.Proto.GetEndPosition()))
			messages := st.All(s, "assistant.message")
			if len(messages) != 1 || messages[0].GetEvent().GetAssistantMessage().GetContent() != "at last" {
				t.Errorf("the turn said %v", messages)
			}
			if len(st.All(s, "abort")) > 0 {
				t.Error("the turn was aborted")
			}
		})
	}
}

// TestIdleTimeoutDoesNotCountTools has a tool take longer than the session may be silent. The
// limit is for all else in the turn, too: it is longer than a CLI on a loaded machine takes
// from one event to the next.
func TestIdleTimeoutDoesNotCountTools(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, harness.OnUser("think", harness.Call("think", nil)),
		harness.OnResult("think", harness.Say("thought")))
	s := st.Create(copilot.SessionOptions{Tools: []copilot.Tool{
		copilot.NewTool("think", "Thinks", func(ctx context.Context, _ struct{}) (string, error) {
			select {
			case <-time.After(7 * time.Second): // longer than the limit
				return "42", nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}, copilot.SkipPermission()),
	}})
	if out := st.Say(s, "think", copilot.WithIdleTimeout(5*time.Second)); out.Text() != "thought" {
		t.Errorf("the turn ended as %v", out)
	}
}

// TestCallersDeadlineDoesNotEndTheTurn: that is an error of the call alone.
func TestCallersDeadlineDoesNotEndTheTurn(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, offlinemodel.Rule{
		When: offlinemodel.When{User: "slow"}, WaitFor: "later", Reply: []offlinemodel.Step{harness.Say("at last")},
	})
	s := st.Create(copilot.SessionOptions{})
	ctx, cancel := context.WithTimeout(st.Ctx, 300*time.Millisecond)
	defer cancel()
	_, err := s.SendAndWait(ctx, "slow")
	if e, ok := copilot.FromError(err).(*copilot.Error); !ok || e.Code != codes.DeadlineExceeded {
		t.Fatalf("err = %v", err)
	}
	st.Gate("later")
	st.Model.Release("later")
	if ev := st.First(s, "assistant.message"); ev.GetEvent().GetAssistantMessage().GetContent() != "at last" {
		t.Errorf("the turn said %v", ev)
	}
}

// TestSendIsIdempotent sends twice under one id, as after a broken connection.
func TestSendIsIdempotent(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	s := st.Create(copilot.SessionOptions{})
	first, err := s.Send(st.Ctx, "once", copilot.WithRequestID("r1"))
	if err != nil {
		t.Fatal(err)
	}
	again, err := s.Send(st.Ctx, "once", copilot.WithRequestID("r1"))
	if err != nil || again.GetMessageId() != first.GetMessageId() {
		t.Errorf("the second send: %v, %v, want message %s", again, err, first.GetMessageId())
	}
	_, err = s.Send(st.Ctx, "something else", copilot.WithRequestID("r1"))
	harness.WantError(t, err, codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED)
	st.First(s, "session.idle")
	if n := len(st.All(s, "user.message")); n != 1 {
		t.Errorf("the agent was told %d times", n)
	}
}

// TestRunStreamsATurn follows a turn with a tool by the one call that does it all.
func TestRunStreamsATurn(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, harness.OnUser("add", harness.Call("add", map[string]any{"a": 1, "b": 2})),
		harness.OnResult("add", harness.Say("It is {{tool_result}}.")))
	type args struct {
		A int `json:"a"`
		B int `json:"b"`
	}
	s := st.Create(copilot.SessionOptions{Tools: []copilot.Tool{
		copilot.NewTool("add", "Adds", func(_ context.Context, a args) (string, error) {
			return fmt.Sprint(a.A + a.B), nil
		}, copilot.SkipPermission()),
	}})
	turn := s.Run(st.Ctx, "add")
	var seen []string
	var text strings.Builder
	for ev, err := range turn.Events() {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, ev.GetEvent().GetEventType())
		text.WriteString(ev.GetEvent().GetAssistantMessageDelta().GetDeltaContent())
	}
	harness.WantOrder(t, seen, "user.message", "assistant.turn_start", "external_tool.requested",
		"external_tool.completed",
		"tool.execution_complete", "assistant.message", "session.idle")
	out, err := turn.Outcome()
	if err != nil || out.Err() != nil || out.Text() != "It is 3." || text.String() != "It is 3." {
		t.Errorf("outcome %v, %v, deltas %q", out, err, text.String())
	}
}
