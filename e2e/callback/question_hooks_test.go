package callback

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// toldModel has a turn, and tells what the model got to read in all of its requests.
func toldModel(prompt string) func(*harness.Scripted, *copilot.Session) func() string {
	return func(st *harness.Scripted, s *copilot.Session) func() string {
		wait := st.GoTurn(s, prompt)
		return func() string {
			out := wait()
			var b strings.Builder
			for _, r := range st.Model.ModelRequests() {
				b.WriteString(harness.Talk(r))
			}
			return b.String() + out.Text()
		}
	}
}

func hookQuestion(hook, prompt, request string, accept proto.Message, accepted string) question {
	return question{
		kind: bridgev1.CallbackKind_CALLBACK_KIND_HOOK, hooks: []string{hook}, alone: true,
		rules: []offlinemodel.Rule{
			harness.OnUser("shell", harness.Call("bash", harness.Shell("echo plain"))),
			harness.OnResult("bash", harness.Say("told: {{tool_result}}")),
			harness.OnUser("broken", harness.Call("view", map[string]any{"path": "/no/such/file"})),
			harness.OnResult("view", harness.Say("told: {{tool_result}}")),
			harness.OnUser("far", harness.Call("loud-shout", map[string]any{"text": "hello"})),
			harness.OnResult("loud-shout", harness.Say("told: {{tool_result}}")),
			harness.OnUser("delegate", harness.Call("task", map[string]any{
				"agent_type": "explore", "name": "scout", "description": "a test", "prompt": "look around",
				"mode": "sync",
			})),
			harness.OnResult("task", harness.Say("told: {{tool_result}}")),
			{When: offlinemodel.When{User: "fails"},
				Error: &offlinemodel.Failure{Status: 400, Message: "no such thing"}},
		},
		ask: toldModel(prompt), request: request, accept: accept, accepted: accepted, silent: "",
		decline: &cliv1.HookOutput{},
	}
}

// hookQuestions are the hooks that a turn calls, by type. preToolUse is with the questions.
var hookQuestions = map[string]question{
	"preMcpToolCall": beforeMCP(),
	"postToolUse": hookQuestion("postToolUse", "shell", `tool_name:"bash"`,
		&cliv1.HookPostToolUseOutput{AdditionalContext: proto.String("seen by a hook")}, "seen by a hook"),
	"postToolUseFailure": hookQuestion("postToolUseFailure", "broken", `tool_name:"view"`,
		&cliv1.HookPostToolUseFailureOutput{AdditionalContext: proto.String("seen by a hook")}, "seen by a hook"),
	"userPromptSubmitted": hookQuestion("userPromptSubmitted", "plainly", `prompt:"plainly"`,
		&cliv1.HookUserPromptSubmittedOutput{ModifiedPrompt: proto.String("put otherwise")}, "put otherwise"),
	"userPromptTransformed": hookQuestion("userPromptTransformed", "plainly", `prompt:"`,
		&cliv1.HookUserPromptTransformedOutput{ModifiedTransformedPrompt: proto.String("put otherwise")},
		"put otherwise"),
	"sessionStart": hookQuestion("sessionStart", "plainly", `source:`,
		&cliv1.HookSessionStartOutput{AdditionalContext: proto.String("seen by a hook")}, "seen by a hook"),
	"agentStop": hookQuestion("agentStop", "plainly", `stop_reason:`, &cliv1.HookAgentStopOutput{}, ""),
	"errorOccurred": hookQuestion("errorOccurred", "fails", `error_json:`,
		&cliv1.HookErrorOccurredOutput{}, ""),
	"subagentStart": hookQuestion("subagentStart", "delegate", `agent_name:`, &cliv1.HookOutput{}, ""),
	"subagentStop":  hookQuestion("subagentStop", "delegate", `agent_name:`, &cliv1.HookOutput{}, ""),
}

// A hook before a tool of an MCP server sets the metadata of the call. No output of it can keep the CLI from calling
// the tool: that is preToolUse's.
func beforeMCP() question {
	q := hookQuestion("preMcpToolCall", "far", `server_name:"loud"`,
		&cliv1.HookPreMcpToolCallOutput{MetaToUseJson: proto.String(`{"by":"a hook"}`)}, `"by":"a hook"`)
	q.declined, q.silent = `(from afar) {"progressToken":1}`, `(from afar) {"progressToken":1}`
	q.config = withMCP("loud",
		func(st *harness.Scripted) *cliv1.McpSerializableServerConfig { return harness.MCPServer(st.T) })
	return q
}

func TestHookQuestions(t *testing.T) {
	t.Parallel()
	host := harness.NewOwnFixture(t, harness.Echo, harness.HostConfig{Raw: true}).Host
	for name, q := range hookQuestions {
		t.Run(name, func(t *testing.T) { q.test(t, host) })
	}
}

// The participants of a session learn of its end, also when it ends because the last of them leaves.
func TestHookAtTheEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*harness.Scripted, *copilot.Session) error{
		"disconnected by another": func(st *harness.Scripted, s *copilot.Session) error {
			_, err := st.Client.Sessions().DisconnectSession(st.Ctx,
				&bridgev1.DisconnectSessionRequest{SessionId: s.ID(), Force: true})
			return err
		},
		"disconnected by the last": func(st *harness.Scripted,
			s *copilot.Session) error {
			return s.Disconnect(st.Ctx)
		},
		"the last leaves": func(_ *harness.Scripted, s *copilot.Session) error { return s.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := harness.NewScripted(t)
			ended := make(chan *cliv1.HookSessionEndInput, 10)
			s := st.Create(copilot.SessionOptions{
				Lifetime: copilot.LifetimeEndWithLastParticipant,
				OnHooks: copilot.Hooks{
					SessionEnd: func(_ context.Context, in *cliv1.HookSessionEndInput) (*cliv1.HookSessionEndOutput,
						error) {
						ended <- in
						return nil, nil
					},
				},
			})
			st.Say(s, "hello")
			if err := end(st, s); err != nil {
				t.Fatal(err)
			}
			if in := harness.Await(st, ended,
				"the hook"); in.GetReason() == cliv1.HookSessionEndInputReason_HOOK_SESSION_END_INPUT_REASON_UNSPECIFIED {
				t.Errorf("called with %v", in)
			}
		})
	}
}
