package callback

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// A hook at the agent's stop can send it back to work; it is then told so.
func TestHookSendsTheAgentBack(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t, harness.OnUser("check again", harness.Say("checked")))
	var stops, active atomic.Int32
	s := st.Create(copilot.SessionOptions{OnHooks: copilot.Hooks{
		AgentStop: func(_ context.Context, in *cliv1.HookAgentStopInput) (*cliv1.HookAgentStopOutput, error) {
			if in.GetStopHookActive() {
				active.Add(1)
			}
			if stops.Add(1) > 1 {
				return nil, nil
			}
			return &cliv1.HookAgentStopOutput{
				Decision: cliv1.HookAgentStopOutputDecision_HOOK_AGENT_STOP_OUTPUT_DECISION_BLOCK,
				Reason:   proto.String("check again"),
			}, nil
		},
	}})
	if out := st.Say(s, "work"); out.Text() != "checked" {
		t.Errorf("the turn ended %v", out)
	}
	if stops.Load() != 2 {
		t.Errorf("the hook was called %d times, %d of them as the cause", stops.Load(), active.Load())
	}
}

// The output of a hook on an error does not change the CLI's reaction to it.
func TestHookOfAnError(t *testing.T) {
	t.Parallel()
	requests := map[string]int{}
	for name, handling := range map[string]cliv1.HookErrorOccurredOutputErrorHandling{
		"none":  cliv1.HookErrorOccurredOutputErrorHandling_HOOK_ERROR_OCCURRED_OUTPUT_ERROR_HANDLING_UNSPECIFIED,
		"retry": cliv1.HookErrorOccurredOutputErrorHandling_HOOK_ERROR_OCCURRED_OUTPUT_ERROR_HANDLING_RETRY,
		"skip":  cliv1.HookErrorOccurredOutputErrorHandling_HOOK_ERROR_OCCURRED_OUTPUT_ERROR_HANDLING_SKIP,
		"abort": cliv1.HookErrorOccurredOutputErrorHandling_HOOK_ERROR_OCCURRED_OUTPUT_ERROR_HANDLING_ABORT,
	} {
		t.Run(name, func(t *testing.T) {
			st := harness.NewScripted(t,
				harness.Rule{When: offlinemodel.When{User: "fails"},
					Error: &offlinemodel.Failure{Status: 400, Message: "no such thing"}})
			var called atomic.Int32
			s := st.Create(copilot.SessionOptions{OnHooks: copilot.Hooks{
				ErrorOccurred: func(_ context.Context,
					in *cliv1.HookErrorOccurredInput) (*cliv1.HookErrorOccurredOutput, error) {
					if called.Add(1) > 3 || !strings.Contains(in.GetErrorJson(), "message") {
						return nil, nil
					}
					return &cliv1.HookErrorOccurredOutput{ErrorHandling: handling, RetryCount: proto.Int64(1)}, nil
				},
			}})
			out := st.GoTurn(s, "fails")()
			requests[name] = len(st.Model.ModelRequests())
			if out.Status() != copilot.TurnFailed || called.Load() == 0 {
				t.Errorf("%s: called %d times, the turn ended %v", name, called.Load(), out)
			}
		})
	}
	for name, n := range requests {
		if n != requests["none"] {
			t.Errorf("with %q the model was asked %d times, with no opinion %d times", name, n, requests["none"])
		}
	}
}
