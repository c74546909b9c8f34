package surface

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// waiting is a call of the CLI that waits for what it asks.
type waiting struct {
	kind bridgev1.CallbackKind
	// joins changes how the participant joins who is there from the beginning.
	joins func(*bridgev1.AttachStart)
	call  func(r *sample, id string) (string, error)
	// answer answers the callback by the CLI's own method; the call's result says so.
	answer func(r *sample, id, request string)
	result string
}

var waitingCalls = map[string]waiting{
	"elicitation": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_ELICITATION,
		call: func(r *sample, id string) (string, error) {
			reply, err := cliv1.NewSessionUiServiceClient(r.conn).Elicitation(r.Ctx,
				&cliv1.SessionUiServiceElicitationRequest{
					SessionId: id, Message: "Go on?", RequestedSchema: &cliv1.UIElicitationSchema{},
				})
			return reply.String(), err
		},
		answer: func(r *sample, id, request string) {
			harness.Did(r.Fixture, cliv1.NewSessionUiServiceClient(r.conn).HandlePendingElicitation,
				&cliv1.SessionUiServiceHandlePendingElicitationRequest{
					SessionId: id, RequestId: request,
					Result: &cliv1.UIElicitationResponse{Action: cliv1.UIElicitationResponseAction_UI_ELICITATION_RESPONSE_ACTION_DECLINE},
				})
		},
		result: "UI_ELICITATION_RESPONSE_ACTION_DECLINE",
	},
	"command": {
		kind:  bridgev1.CallbackKind_CALLBACK_KIND_COMMAND,
		joins: harness.Commanding("deploy"),
		call: func(r *sample, id string) (string, error) {
			reply, err := cliv1.NewSessionCommandsServiceClient(r.conn).Invoke(r.Ctx,
				&cliv1.SessionCommandsServiceInvokeRequest{
					SessionId: id, Name: "deploy", Input: proto.String("prod"),
				})
			return fmt.Sprint(reply, err), nil // of a command that fails the CLI makes an error
		},
		answer: func(r *sample, id, request string) {
			harness.Did(r.Fixture, cliv1.NewSessionCommandsServiceClient(r.conn).HandlePendingCommand,
				&cliv1.SessionCommandsServiceHandlePendingCommandRequest{
					SessionId: id, RequestId: request, Error: proto.String("not on a Friday"),
				})
		},
		result: "not on a Friday",
	},
}

// test: while a call waits for an answer, a participant joins, for which the bridge resumes the session; CLI 1.0.102
// would let each wait for the other.
func (w waiting) test(t *testing.T, r *sample) {
	st := &harness.Scripted{Fixture: r.Fixture}
	s := st.Create(copilot.SessionOptions{})
	start := harness.JoinOf(s.ID(), &bridgev1.Handlers{Kinds: []bridgev1.CallbackKind{w.kind}})
	if w.joins != nil {
		start.Handlers = nil
		w.joins(start)
	}
	st.Attach(start)
	frames := st.Callbacks(s.ID())
	type answer struct {
		text string
		err  error
	}
	answered, joined := make(chan answer, 1), make(chan error, 1)
	go func() {
		text, err := w.call(r, s.ID())
		answered <- answer{text, err}
	}()
	asked := frames.Requested(w.kind)
	go func() {
		_, err := st.TryAttach(st.Client,
			harness.JoinOf(s.ID(),
				&bridgev1.Handlers{Kinds: []bridgev1.CallbackKind{bridgev1.CallbackKind_CALLBACK_KIND_USER_INPUT}}))
		joined <- err
	}()
	st.Eventually("the participant", func() bool {
		now, err := s.Get(r.Ctx)
		return err == nil && len(now.Proto.GetParticipants()) > 1 // with the earlier one
	})
	w.answer(r, s.ID(), asked.GetCallbackId())
	if got := <-answered; got.err != nil || !strings.Contains(got.text, w.result) {
		t.Errorf("the call: %s, %v", got.text, got.err)
	}
	if err := <-joined; err != nil {
		t.Errorf("the join: %v", err)
	}
	st.Say(s, "and on")
}

// TestAutoModeSwitchByMethod: the question whether to go on with a model of the CLI's choice
// is answered by the CLI's own method, which takes the model at its word, and the bridge
// tells that it is answered.
func TestAutoModeSwitchByMethod(t *testing.T) {
	t.Parallel()
	g := harness.NewGitHub(t, harness.RateLimited)
	session, ui := cliv1.NewSessionServiceClient(g.Conn()), cliv1.NewSessionUiServiceClient(g.Conn())
	config := g.As("token-of-ann", "claude-sonnet-4.5")
	id := harness.Did(g.Fixture, session.Create, &cliv1.SessionServiceCreateRequest{
		Model: config.Model, GithubToken: config.GithubToken, WorkingDirectory: config.WorkingDirectory,
		RequestAutoModeSwitch: proto.Bool(true),
	}).GetSessionId()
	g.Own(id)
	s := &harness.TestSession{Session: g.Client.Session(id), Fixture: g.Fixture}
	frames := (&harness.Scripted{Fixture: g.Fixture}).Callbacks(id)
	s.Submit("ask")
	asked := s.WaitFor("auto_mode_switch.requested").GetEvent().GetAutoModeSwitchRequested()
	callback := frames.Requested(bridgev1.CallbackKind_CALLBACK_KIND_AUTO_MODE_SWITCH)
	yes := &cliv1.SessionUiServiceHandlePendingAutoModeSwitchRequest{
		SessionId: id, RequestId: asked.GetRequestId(),
		Response: cliv1.UIAutoModeSwitchResponse_UI_AUTO_MODE_SWITCH_RESPONSE_YES,
	}
	check(t, harness.Did(g.Fixture, ui.HandlePendingAutoModeSwitch, yes).GetSuccess(), "the answer was not taken")
	if over := frames.Resolved(callback.GetCallbackId()); over.GetOutcome() != bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED {
		t.Errorf("the question ended as %v", over)
	}
	done := s.WaitFor("auto_mode_switch.completed").GetEvent().GetAutoModeSwitchCompleted()
	check(t, done.GetResponse() == cliv1.AutoModeSwitchResponse_AUTO_MODE_SWITCH_RESPONSE_YES, "the CLI took it for %v",
		done)
	s.WaitFor("session.idle")
	check(t, !harness.Did(g.Fixture, ui.HandlePendingAutoModeSwitch, yes).GetSuccess(), "a second answer was taken")
	if got := s.Ask("go on"); got != "by claude-haiku-4.5: go on" {
		t.Errorf("the next turn's answer is %q", got)
	}
}
