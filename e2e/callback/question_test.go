package callback

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// questions are the kinds of callbacks that one CLI can be brought to ask.
var questions = map[string]question{
	"tool call": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_TOOL_CALL,
		config: func(_ *harness.Scripted, c *cliv1.SessionConfig) {
			c.Tools = []*cliv1.ToolDefinition{harness.Declared("lookup").Definition}
		},
		rules: []offlinemodel.Rule{
			harness.OnUser("ask", harness.Call("lookup", map[string]any{"word": "bridge"})),
			harness.OnResult("lookup", harness.Say("told: {{tool_result}}")),
		},
		request:  `tool_name:"lookup"`,
		accept:   &bridgev1.ToolAnswer{Outcome: &bridgev1.ToolAnswer_Text{Text: "something over water"}},
		accepted: "something over water",
		decline:  &bridgev1.ToolAnswer{Outcome: &bridgev1.ToolAnswer_Result{Result: copilot.Failure("no such word")}},
		declined: "no such word",
		wrong:    &bridgev1.ToolAnswer{},
		silent:   "no participant answered in time", stays: true,
	},
	"permission": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_PERMISSION,
		rules: []offlinemodel.Rule{
			harness.OnUser("ask", harness.Call("bash", harness.Shell("echo written > file; echo done"))),
			harness.OnResult("bash", harness.Say("told: {{tool_result}}")),
		},
		ask: func(st *harness.Scripted, s *copilot.Session) func() string {
			wait := st.GoTurn(s, "ask")
			return func() string { return fmt.Sprintf("%s, a file: %v", wait().Text(), st.Exists("file")) }
		},
		request: `full_command_text:"echo written`,
		accept:  copilot.ApproveOnce(), accepted: "a file: true",
		decline: copilot.Reject("not today"), declined: "not today",
		wrong:  &copilot.Decision{},
		silent: "a file: false", stays: true,
	},
	"user input": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_USER_INPUT,
		rules: []offlinemodel.Rule{
			harness.OnUser("ask",
				harness.Call("ask_user",
					map[string]any{"question": "Which colour?", "choices": []string{"red", "blue"},
						"allow_freeform": true})),
			harness.OnResult("ask_user", harness.Say("told: {{tool_result}}")),
		},
		request: `question:"Which colour?"`,
		accept:  &copilot.UserInputAnswer{Answer: "green", WasFreeform: true}, accepted: "green",
		declined: "unable to respond", silent: "unable to respond",
	},
	"elicitation": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_ELICITATION,
		ask: func(st *harness.Scripted, s *copilot.Session) func() string {
			return invoke(st, s, "session.ui.elicitation", map[string]any{
				"message": "Who are you?",
				"requestedSchema": map[string]any{
					"type": "object", "properties": map[string]any{"name": map[string]any{"type": "string"}},
					"required": []string{"name"},
				},
			})
		},
		request: `message:"Who are you?"`,
		accept: &copilot.ElicitationAnswer{
			Action: cliv1.UIElicitationResponseAction_UI_ELICITATION_RESPONSE_ACTION_ACCEPT,
			Content: map[string]*cliv1.UIElicitationFieldValue{
				"name": {Variant: &cliv1.UIElicitationFieldValue_StringValue{StringValue: "Ada"}},
			},
		},
		accepted: `"name":"Ada"`,
		decline:  &copilot.ElicitationAnswer{Action: cliv1.UIElicitationResponseAction_UI_ELICITATION_RESPONSE_ACTION_DECLINE},
		declined: `"decline"`,
		wrong:    &copilot.ElicitationAnswer{},
		silent:   `"cancel"`,
	},
	"plan exit": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_EXIT_PLAN_MODE,
		rules: []offlinemodel.Rule{
			harness.OnUser("ask", harness.Call("exit_plan_mode", map[string]any{
				"summary": "First this, then that.", "actions": []string{"interactive", "exit_only"},
				"recommendedAction": "interactive",
			})),
			harness.OnResult("exit_plan_mode", harness.Say("told: {{tool_result}}")),
		},
		ask: func(st *harness.Scripted, s *copilot.Session) func() string {
			wait := st.GoTurn(s, "ask",
				copilot.WithPrompt(func(p *bridgev1.Prompt) { p.AgentMode = cliv1.SendAgentMode_SEND_AGENT_MODE_PLAN }))
			return func() string {
				text := wait().Text() // none where the agent is not told to go on
				done := st.First(s, "exit_plan_mode.completed").GetEvent().GetExitPlanModeCompleted()
				return fmt.Sprintf("approved: %v, told: %s", done.GetApproved(), text)
			}
		},
		request:  `summary:"First this, then that."`,
		accept:   &copilot.ExitPlanModeAnswer{Approved: true, SelectedAction: proto.String("interactive")},
		accepted: "approved: true",
		decline:  &copilot.ExitPlanModeAnswer{Feedback: proto.String("that first")}, declined: "that first",
		silent: "approved: false",
	},
	"hook": {
		kind:  bridgev1.CallbackKind_CALLBACK_KIND_HOOK,
		hooks: []string{"preToolUse"},
		rules: []offlinemodel.Rule{
			harness.OnUser("ask", harness.Call("bash", harness.Shell("echo as asked"))),
			harness.OnResult("bash", harness.Say("told: {{tool_result}}")),
		},
		request: `tool_name:"bash"`,
		accept:  &cliv1.HookPreToolUseOutput{ModifiedArgsJson: proto.String(`{"command":"echo changed","description":"a test"}`)}, accepted: "changed",
		decline: &cliv1.HookPreToolUseOutput{
			PermissionDecision:       cliv1.HookPermissionDecision_HOOK_PERMISSION_DECISION_DENY,
			PermissionDecisionReason: proto.String("not today"),
		}, declined: "not today",
		wrong:  &cliv1.HookPostToolUseOutput{},
		silent: "hook not answered", alone: true,
	},
	"system message": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_SYSTEM_MESSAGE_TRANSFORM,
		config: func(_ *harness.Scripted, c *cliv1.SessionConfig) {
			c.SystemMessage = &cliv1.SystemMessageConfig{
				Mode: cliv1.SystemMessageMode_SYSTEM_MESSAGE_MODE_CUSTOMIZE,
				Sections: map[string]*cliv1.SystemMessageSectionOverride{
					"tone": {Action: cliv1.SystemMessageSectionAction_SYSTEM_MESSAGE_SECTION_ACTION_TRANSFORM},
				},
			}
		},
		ask: func(st *harness.Scripted, s *copilot.Session) func() string {
			wait := st.GoTurn(s, "ask")
			return func() string { wait(); return st.LastModelRequest().System }
		},
		request: `key:"tone"`,
		answer: func(cb *bridgev1.Callback) proto.Message {
			sections := cb.GetSystemMessageTransform().GetSections()
			for _, name := range slices.Sorted(maps.Keys(sections)) {
				sections[name] = &cliv1.SystemMessageSectionText{Content: "Speak like a pirate."}
			}
			return &cliv1.CallbackSystemMessageServiceTransformResponse{Sections: sections}
		},
		accepted: "Speak like a pirate.", declined: "# Tone and style", silent: "# Tone and style",
	},
	"command": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_COMMAND,
		config: func(_ *harness.Scripted, c *cliv1.SessionConfig) {
			c.Commands = []*cliv1.CommandDeclaration{{Name: "deploy", Description: "Deploys."}}
		},
		ask: func(st *harness.Scripted, s *copilot.Session) func() string {
			return invoke(st, s, "session.commands.invoke", map[string]any{"name": "deploy", "input": "prod"})
		},
		request: `command_name:"deploy"`,
		accept:  &bridgev1.CommandAnswer{}, accepted: "completed",
		decline: &bridgev1.CommandAnswer{Error: proto.String("not on a Friday")}, declined: "not on a Friday",
		silent: "no participant",
	},
	"queued command": {
		kind:    bridgev1.CallbackKind_CALLBACK_KIND_QUEUED_COMMAND,
		ask:     queueing("/unheard of"),
		request: `command:"/unheard of"`,
		accept:  handledAndStop, accepted: "messages after it: 0",
		decline: &cliv1.QueuedCommandResult{Variant: &cliv1.QueuedCommandResult_False{False: &cliv1.QueuedCommandNotHandled{}}}, declined: "messages after it: 1",
		wrong:  &cliv1.QueuedCommandResult{},
		silent: "messages after it: 1",
	},
	"canvas": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_CANVAS_OPEN,
		config: func(_ *harness.Scripted, c *cliv1.SessionConfig) {
			c.RequestCanvasRenderer = proto.Bool(true)
			c.Canvases = []*cliv1.CanvasDeclaration{{Id: "board", DisplayName: "Board", Description: "A board."}}
		},
		ask: func(st *harness.Scripted, s *copilot.Session) func() string {
			return invoke(st, s, "session.canvas.open",
				map[string]any{"canvasId": "board", "instanceId": "one", "input": map[string]any{"colour": "red"}})
		},
		request:  `canvas_id:"board"`,
		accept:   &cliv1.CallbackCanvasServiceOpenResponse{Url: proto.String("http://127.0.0.1/board")},
		accepted: "http://127.0.0.1/board",
		declined: "not today", silent: "no participant",
	},
	"provider token": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_PROVIDER_TOKEN,
		config: func(_ *harness.Scripted, c *cliv1.SessionConfig) {
			c.Provider.ApiKey, c.Provider.HasBearerTokenProvider = nil, proto.Bool(true)
		},
		ask: func(st *harness.Scripted, s *copilot.Session) func() string {
			wait := st.GoTurn(s, "ask")
			return func() string {
				out := wait()
				if requests := st.Model.ModelRequests(); len(requests) > 0 {
					return requests[len(requests)-1].Token()
				}
				return out.Error().GetMessage()
			}
		},
		request: `provider_name:"default"`,
		accept:  &cliv1.CallbackProviderTokenServiceGetTokenResponse{Token: "fresh"}, accepted: "fresh",
		declined: "not today", insists: true, silent: "no participant",
	},
}

// handledAndStop says that a queued command was carried out, and that what is queued behind
// it is to wait: without that it makes no difference that can be seen who carried it out.
var handledAndStop = &cliv1.QueuedCommandResult{Variant: &cliv1.QueuedCommandResult_True{
	True: &cliv1.QueuedCommandHandled{StopProcessingQueue: proto.Bool(true)},
}}

// queueing has a command queued, with a message behind it. The result is the number of messages that have been taken up
// when the session is at rest.
func queueing(command string) func(*harness.Scripted, *copilot.Session) func() string {
	return func(st *harness.Scripted, s *copilot.Session) func() string {
		st.T.Helper()
		invoke(st, s, "session.commands.enqueue", map[string]any{"command": command})()
		st.Begin(s, "next")
		return func() string {
			st.T.Helper()
			done := st.First(s, "command.completed")
			for _, err := range s.Events(st.Ctx, copilot.After(done.GetPosition()), copilot.OfTypes("session.idle")) {
				if err != nil {
					st.T.Fatal(err)
				}
				break
			}
			return fmt.Sprintf("messages after it: %d", len(st.All(s, "user.message")))
		}
	}
}

func TestQuestions(t *testing.T) {
	t.Parallel()
	host := harness.NewOwnFixture(t, harness.Echo, harness.HostConfig{Raw: true}).Host
	for name, q := range questions {
		t.Run(name, func(t *testing.T) { q.test(t, host) })
	}
}
