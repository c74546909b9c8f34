package callback

import (
	"encoding/json"
	"slices"
	"testing"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Every kind has an answer for when nobody gives one, and none of them approves.
func TestFallbacks(t *testing.T) {
	t.Parallel()
	const failure = `{"result":{"error":"nobody handles it","resultType":"failure","textResultForLlm":"The tool \"t\" gave no result: nobody handles it."}}`
	const deny = `{"output":{"permissionDecision":"deny","permissionDecisionReason":"hook not answered: nobody answered in time"}}`
	for _, test := range []struct {
		method, params string
		why            Why
		want, err      string
	}{
		{method: ToolRequested, want: failure},
		{method: PermissionRequested, want: `{"result":{"kind":"user-not-available"}}`},
		{method: ElicitationRequested, want: `{"result":{"action":"cancel"}}`},
		{method: CommandExecute, why: Overflow, want: `{"error":"too many requests are pending"}`},
		{method: UserInputRequest, err: "userInput.request: nobody handles it"},
		{method: ExitPlanModeRequest, want: `{"approved":false}`},
		{method: AutoModeRequest, want: `{"response":"no"}`},
		{method: HooksInvoke, params: `{"hookType":"preToolUse"}`, why: TimedOut, want: deny},
		{method: HooksInvoke, params: `{"hookType":"preMcpToolCall"}`, why: TimedOut, want: deny},
		{method: HooksInvoke, params: `{"hookType":"postToolUse"}`, want: `{}`},
		{method: HooksInvoke, params: `{"hookType":"sessionStart"}`, want: `{}`},
		{method: HooksInvoke, params: `what`, why: TimedOut, want: deny},
		{method: SystemTransform, params: `{"sections":{"a":{"content":"x"}}}`, want: `{"sections":{"a":{"content":"x"}}}`},
		{method: SystemTransform, params: `{}`, err: "systemMessage.transform: nobody handles it"},
		{method: "providerToken.getToken", why: TimedOut, err: "providerToken.getToken: nobody answered in time"},
		{method: "something.new", err: "something.new: nobody handles it"},
	} {
		k := ForEvent(test.method)
		if k == nil {
			k = ForRequest(test.method)
		}
		got := k.Fallback(&Pending{ID: "1", Kind: k, Tool: "t", Params: json.RawMessage(test.params)}, test.why)
		switch {
		case test.err != "":
			if got.Error == nil || got.Error.Message != test.err || got.Error.Code != DefaultErrorCode || got.Members != nil {
				t.Errorf("%s %s: %+v", test.method, test.params, got)
			}
		case got.Error != nil || string(got.Members) != test.want:
			t.Errorf("%s %s: %s, %v", test.method, test.params, got.Members, got.Error)
		}
	}
}

func TestKinds(t *testing.T) {
	t.Parallel()
	types := map[string]bridgev1.CallbackKind{
		ToolRequested: bridgev1.CallbackKind_CALLBACK_KIND_TOOL_CALL, PermissionRequested: bridgev1.CallbackKind_CALLBACK_KIND_PERMISSION,
	}
	for _, k := range slices.Concat(events, requests) {
		want := types[k.Method]
		if want == 0 {
			want = raw
		}
		if k.Type != want || k.Fallback == nil || k.Event != (k.AnswerMethod != "" && k.DoneEvent != "") {
			t.Errorf("%s: %+v", k.Method, k)
		}
		if k.Event && (ForEvent(k.Method) != k || DoneBy(k.DoneEvent) != k || ForRequest(k.Method) == k) ||
			!k.Event && (ForRequest(k.Method) != k || ForEvent(k.Method) != nil) {
			t.Errorf("%s is not found as what it is", k.Method)
		}
		if SwitchFor(k.Method) != k.Switch || k.Switch != "" && !slices.Contains(Switches(), k.Switch) {
			t.Errorf("%s: switch %q", k.Method, k.Switch)
		}
	}
	if ForEvent("assistant.message") != nil || DoneBy("assistant.message") != nil || SwitchFor("x") != "" {
		t.Error("what asks nothing has a kind")
	}
	if k := ForRequest("something.new"); k.Method != "something.new" || k.Type != raw {
		t.Errorf("a new method is %+v", k)
	}
}
