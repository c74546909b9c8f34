package callback

import (
	"encoding/json"
	"testing"
)

// Every kind has a default answer, and no default answer approves.
func TestFallbacks(t *testing.T) {
	t.Parallel()
	const failure = `{"result":{"error":"no participant handles it","resultType":"failure","textResultForLlm":"The tool \"t\" gave no result: no participant handles it."}}`
	const deny = `{"output":{"permissionDecision":"deny","permissionDecisionReason":"hook not answered: no participant answered in time"}}`
	for _, test := range []struct {
		method, params string
		why            Why
		want, err      string
	}{
		{method: ToolRequested, want: failure},
		{method: PermissionRequested, want: `{"result":{"kind":"user-not-available"}}`},
		{method: "elicitation.requested", want: `{"result":{"action":"cancel"}}`},
		{method: CommandExecute, why: Overflow, want: `{"error":"too many requests are pending"}`},
		{method: "userInput.request", err: "userInput.request: no participant handles it"},
		{method: "exitPlanMode.request", want: `{"approved":false}`},
		{method: "autoModeSwitch.request", want: `{"response":"no"}`},
		{method: HooksInvoke, params: `{"hookType":"preToolUse"}`, why: TimedOut, want: deny},
		{method: HooksInvoke, params: `{"hookType":"preMcpToolCall"}`, why: TimedOut, want: deny},
		{method: HooksInvoke, params: `{"hookType":"postToolUse"}`, want: `{}`},
		{method: HooksInvoke, params: `{"hookType":"sessionStart"}`, want: `{}`},
		{method: HooksInvoke, params: `what`, why: TimedOut, want: deny},
		{method: "systemMessage.transform", params: `{"sections":{"a":{"content":"x"}}}`, want: `{"sections":{"a":{"content":"x"}}}`},
		{method: "systemMessage.transform", params: `{}`, err: "systemMessage.transform: no participant handles it"},
		{method: "providerToken.getToken", why: TimedOut, err: "providerToken.getToken: no participant answered in time"},
		{method: "something.new", err: "something.new: no participant handles it"},
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
