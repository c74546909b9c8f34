package copilot_test

import (
	"context"
	"errors"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// Short expressions answer the common callbacks.
func TestShortAnswers(t *testing.T) {
	t.Parallel()
	f, c := newFake(t)
	_, a := session(t, f, c, copilot.SessionOptions{
		OnUserInput: func(_ context.Context, r *copilot.UserInputRequest) (*copilot.UserInputAnswer, error) {
			return copilot.UserAnswer(r, "Paris"), nil
		},
		OnElicitation: func(context.Context, *copilot.ElicitationRequest) (*copilot.ElicitationAnswer, error) {
			return copilot.AcceptForm(map[string]any{"n": 2, "x": 0.5, "s": "t", "b": true, "l": []string{"u"}})
		},
		OnExitPlanMode: func(_ context.Context, r *copilot.ExitPlanModeRequest) (*copilot.ExitPlanModeAnswer, error) {
			return copilot.ApprovePlan(r), nil
		},
		OnAutoModeSwitch: func(context.Context, *copilot.AutoModeSwitchRequest) (*copilot.AutoModeSwitchAnswer, error) {
			return copilot.SwitchModel(true), nil
		},
		OnSystemMessage: func(_ context.Context, r *copilot.SystemMessageRequest) (map[string]string, error) {
			return map[string]string{"tone": r.GetSections()["tone"].GetContent() + " Be brief."}, nil
		},
		OnQueuedCommand: func(context.Context, *copilot.QueuedCommand) (bool, error) { return true, nil },
		OnMCPOAuth: func(context.Context, *copilot.MCPOAuthRequest) (*copilot.MCPOAuthAnswer, error) {
			return copilot.MCPToken("secret"), nil
		},
		OnMCPHeaders: func(context.Context, *copilot.MCPHeadersRequest) (map[string]string, error) {
			return map[string]string{"x": "y"}, nil
		},
		OnSampling: func(context.Context, *copilot.SamplingRequest) (*copilot.SamplingAnswer, error) {
			return nil, errors.New("no model")
		},
	})
	for _, tc := range []struct {
		kind bridgev1.CallbackKind
		cb   *bridgev1.Callback
		want string
	}{
		{bridgev1.CallbackKind_CALLBACK_KIND_USER_INPUT, &bridgev1.Callback{Request: &bridgev1.Callback_UserInput{
			UserInput: &copilot.UserInputRequest{Choices: []string{"Paris", "Rome"}},
		}}, `{"userInput":{"answer":"Paris"}}`},
		{bridgev1.CallbackKind_CALLBACK_KIND_ELICITATION, &bridgev1.Callback{Request: &bridgev1.Callback_Elicitation{
			Elicitation: &copilot.ElicitationRequest{},
		}}, `{"elicitation":{"action":"UI_ELICITATION_RESPONSE_ACTION_ACCEPT","content":{"b":{"boolValue":true},` +
			`"l":{"list":{"items":["u"]}},"n":{"doubleValue":2},"s":{"stringValue":"t"},"x":{"doubleValue":0.5}}}}`},
		{bridgev1.CallbackKind_CALLBACK_KIND_EXIT_PLAN_MODE, &bridgev1.Callback{
			Request: &bridgev1.Callback_ExitPlanMode{
				ExitPlanMode: &copilot.ExitPlanModeRequest{RecommendedAction: "autopilot"},
			},
		}, `{"exitPlanMode":{"approved":true,"selectedAction":"autopilot"}}`},
		{bridgev1.CallbackKind_CALLBACK_KIND_AUTO_MODE_SWITCH, &bridgev1.Callback{
			Request: &bridgev1.Callback_AutoModeSwitch{AutoModeSwitch: &copilot.AutoModeSwitchRequest{}},
		}, `{"autoModeSwitch":{"response":"CALLBACK_AUTO_MODE_SWITCH_SERVICE_REQUEST_RESPONSE_RESPONSE_YES"}}`},
		{bridgev1.CallbackKind_CALLBACK_KIND_SYSTEM_MESSAGE_TRANSFORM, &bridgev1.Callback{
			Request: &bridgev1.Callback_SystemMessageTransform{SystemMessageTransform: &copilot.SystemMessageRequest{
				Sections: map[string]*cliv1.SystemMessageSectionText{"tone": {Content: "Hi."}, "tools": {Content: "T"}},
			}},
		}, `{"systemMessageTransform":{"sections":{"tone":{"content":"Hi. Be brief."},"tools":{"content":"T"}}}}`},
		{bridgev1.CallbackKind_CALLBACK_KIND_QUEUED_COMMAND, &bridgev1.Callback{
			Request: &bridgev1.Callback_QueuedCommand{QueuedCommand: &copilot.QueuedCommand{}},
		}, `{"queuedCommand":{"true":{}}}`},
		{bridgev1.CallbackKind_CALLBACK_KIND_MCP_OAUTH, &bridgev1.Callback{
			Request: &bridgev1.Callback_McpOauth{McpOauth: &copilot.MCPOAuthRequest{}},
		}, `{"mcpOauth":{"token":{"accessToken":"secret"}}}`},
		{bridgev1.CallbackKind_CALLBACK_KIND_MCP_HEADERS, &bridgev1.Callback{
			Request: &bridgev1.Callback_McpHeaders{McpHeaders: &copilot.MCPHeadersRequest{}},
		}, `{"mcpHeaders":{"headers":{"headers":{"x":"y"}}}}`},
		{bridgev1.CallbackKind_CALLBACK_KIND_SAMPLING, &bridgev1.Callback{
			Request: &bridgev1.Callback_Sampling{Sampling: &copilot.SamplingRequest{}},
		}, `{"error":{"message":"The handler failed."}}`},
	} {
		tc.cb.CallbackId, tc.cb.SessionId, tc.cb.Kind = tc.kind.String(), "s1", tc.kind
		a.ask(tc.cb)
		got := a.answer()
		want := new(bridgev1.Answer)
		if err := protojson.Unmarshal([]byte(tc.want), want); err != nil {
			t.Fatal(err)
		}
		if text := protojson.Format(got.GetAnswer()); text != protojson.Format(want) {
			t.Errorf("%v: %s, want %s", tc.kind, text, tc.want)
		}
		a.done(got.GetCallbackId())
	}
}

func TestAcceptFormRefusesOtherTypes(t *testing.T) {
	t.Parallel()
	if _, err := copilot.AcceptForm(map[string]any{"when": struct{}{}}); err == nil {
		t.Error("a struct passed")
	}
}

func TestPermissionRules(t *testing.T) {
	t.Parallel()
	rules := copilot.FirstOf(
		copilot.ApproveKinds("read"),
		copilot.ApproveKindsForSession("write"),
		copilot.RejectKinds("There is no network.", "url"),
		copilot.ApproveIf(func(r *copilot.PermissionRequest) bool { return r.Kind == "custom-tool" }),
	)
	for kind, check := range map[string]func(*copilot.Decision) bool{
		"read":        func(d *copilot.Decision) bool { return d.GetApproveOnce() != nil },
		"write":       func(d *copilot.Decision) bool { return d.GetApproveForSession() != nil },
		"url":         func(d *copilot.Decision) bool { return d.GetReject().GetFeedback() == "There is no network." },
		"custom-tool": func(d *copilot.Decision) bool { return d.GetApproveOnce() != nil },
		"shell":       func(d *copilot.Decision) bool { return d.GetReject() != nil },
	} {
		d, err := rules(t.Context(), &copilot.PermissionRequest{Kind: kind})
		if err != nil || !check(d) {
			t.Errorf("%s: %v, %v", kind, d, err)
		}
	}
}
