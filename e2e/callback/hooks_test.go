package callback

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// seen collects what hooks were called with.
type seen struct {
	mu    sync.Mutex
	calls []string
}

func (s *seen) note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, fmt.Sprintf(format, args...))
}

func (s *seen) has(call string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.calls, call)
}

// Every hook of a turn comes with its own input.
func TestHooksOfATurn(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t,
		harness.OnUser("prompt", harness.Call("bash", harness.Shell("echo one")),
			harness.Call("view", map[string]any{"path": "/no/such/file"})),
		harness.OnResult("", harness.Say("done: {{tool_result.bash}}")),
	)
	var s seen
	session := st.Create(copilot.SessionOptions{
		OnPermission: copilot.ApproveAll,
		OnHooks: copilot.Hooks{
			SessionStart: func(_ context.Context, in *cliv1.HookSessionStartInput) (*cliv1.HookSessionStartOutput,
				error) {
				s.note("start in %s", in.GetCwd())
				return &cliv1.HookSessionStartOutput{AdditionalContext: proto.String("the session's context")}, nil
			},
			UserPromptSubmitted: func(_ context.Context,
				in *cliv1.HookUserPromptSubmittedInput) (*cliv1.HookUserPromptSubmittedOutput, error) {
				s.note("submitted %s", in.GetPrompt())
				return &cliv1.HookUserPromptSubmittedOutput{ModifiedPrompt: proto.String("changed prompt")}, nil
			},
			PreToolUse: func(_ context.Context, in *cliv1.HookPreToolUseInput) (*cliv1.HookPreToolUseOutput, error) {
				var args struct{ Command string }
				if err := json.Unmarshal([]byte(in.GetToolArgsJson()), &args); err != nil {
					return nil, err
				}
				s.note("before %s %s", in.GetToolName(), args.Command)
				return nil, nil
			},
			PostToolUse: func(_ context.Context, in *cliv1.HookPostToolUseInput) (*cliv1.HookPostToolUseOutput, error) {
				s.note("after %s", in.GetToolName())
				return &cliv1.HookPostToolUseOutput{AdditionalContext: proto.String("the hook's context")}, nil
			},
			PostToolUseFailure: func(_ context.Context,
				in *cliv1.HookPostToolUseFailureInput) (*cliv1.HookPostToolUseFailureOutput, error) {
				s.note("failed %s: %v", in.GetToolName(), in.GetError() != "")
				return nil, nil
			},
			AgentStop: func(context.Context, *cliv1.HookAgentStopInput) (*cliv1.HookAgentStopOutput, error) {
				s.note("stop")
				return nil, nil
			},
		},
	})
	st.Say(session, "the prompt")
	for _, want := range []string{
		"start in " + st.Dir, "submitted the prompt", "before bash echo one", "before view ", "after bash",
		"failed view: true", "stop",
	} {
		if !s.has(want) {
			t.Errorf("no call %q among %q", want, s.calls)
		}
	}
	said := harness.Talk(st.LastModelRequest())
	for _, want := range []string{"changed prompt", "the hook's context", "the session's context"} {
		if !strings.Contains(said, want) {
			t.Errorf("the model was not told %q, but %s", want, said)
		}
	}
}

// Two participants with a hook before a tool get the call in the order in which they joined. The second sees the
// changes of the first; a refusal ends it.
func TestHooksAreChained(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		first, second *cliv1.HookPreToolUseOutput
		sees, result  string
	}{
		"both change": {
			first:  changing("echo first"),
			second: changing("echo second"),
			sees:   "echo first", result: "second",
		},
		"only the first changes": {first: changing("echo first"), sees: "echo first", result: "first"},
		"the second refuses": {first: changing("echo first"), second: denying("no"), sees: "echo first",
			result: "no"},
		"the first refuses": {first: denying("never"), second: changing("echo second"), result: "never"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := harness.NewScripted(t, harness.OnUser("run", harness.Call("bash", harness.Shell("echo own"))),
				harness.OnResult("bash", harness.Say("{{tool_result}}")))
			var second seen
			s := st.Create(copilot.SessionOptions{
				OnPermission: copilot.ApproveAll,
				OnHooks: copilot.Hooks{PreToolUse: func(context.Context,
					*cliv1.HookPreToolUseInput) (*cliv1.HookPreToolUseOutput, error) {
					return test.first, nil
				}},
			})
			st.Join(s.ID(), copilot.SessionOptions{
				OnHooks: copilot.Hooks{PreToolUse: func(_ context.Context,
					in *cliv1.HookPreToolUseInput) (*cliv1.HookPreToolUseOutput, error) {
					second.note("%s", in.GetToolArgsJson())
					return test.second, nil
				}},
			})
			if out := st.Say(s, "run"); !strings.Contains(out.Text(), test.result) {
				t.Errorf("the model was told %q, want %q", out.Text(), test.result)
			}
			if calls := strings.Join(second.calls, "; "); (calls == "") != (test.sees == "") ||
				!strings.Contains(calls, test.sees) {
				t.Errorf("the second was called with %q, want %q", calls, test.sees)
			}
		})
	}
}

func changing(command string) *cliv1.HookPreToolUseOutput {
	args, err := json.Marshal(harness.Shell(command))
	if err != nil {
		panic(err)
	}
	return &cliv1.HookPreToolUseOutput{ModifiedArgsJson: proto.String(string(args))}
}

func denying(why string) *cliv1.HookPreToolUseOutput {
	return &cliv1.HookPreToolUseOutput{
		PermissionDecision:       cliv1.HookPermissionDecision_HOOK_PERMISSION_DECISION_DENY,
		PermissionDecisionReason: proto.String(why),
	}
}

// A participant who abstains from a hook leaves it to the next one; who handles other hooks
// only is not asked, and refuses nothing.
func TestHooksOfNoOpinion(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, harness.OnUser("run", harness.Call("bash", harness.Shell("echo own"))),
		harness.OnResult("bash", harness.Say("{{tool_result}}")))
	s := st.Create(copilot.SessionOptions{
		OnPermission: copilot.ApproveAll,
		OnHooks: copilot.Hooks{AgentStop: func(context.Context, *cliv1.HookAgentStopInput) (*cliv1.HookAgentStopOutput,
			error) {
			return nil, nil
		}},
	})
	frames := st.Callbacks(s.ID())
	if out := st.Say(s, "run"); !strings.Contains(out.Text(), "own") {
		t.Errorf("the model was told %q", out.Text())
	}
	stopped := frames.Requested(bridgev1.CallbackKind_CALLBACK_KIND_HOOK)
	if hook := stopped.GetHook().GetHookType(); hook != "agentStop" {
		t.Errorf("asked first about %q", hook)
	}
	abstaining := func(context.Context, *cliv1.HookPreToolUseInput) (*cliv1.HookPreToolUseOutput, error) {
		return nil, copilot.ErrAbstain
	}
	st.Join(s.ID(), copilot.SessionOptions{OnHooks: copilot.Hooks{PreToolUse: abstaining}})
	st.Join(s.ID(), copilot.SessionOptions{OnHooks: copilot.Hooks{
		PreToolUse: func(context.Context, *cliv1.HookPreToolUseInput) (*cliv1.HookPreToolUseOutput, error) {
			return denying("seen by the next"), nil
		},
	}})
	if out := st.Say(s, "run again"); !strings.Contains(out.Text(), "seen by the next") {
		t.Errorf("the model was told %q", out.Text())
	}
}
