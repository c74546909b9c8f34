package session

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
)

func mustObject(t *testing.T, text string) jsonobj.Object {
	t.Helper()
	o, err := jsonobj.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// A refusal of any kind ends the asking; nothing else does.
func TestHookRefusals(t *testing.T) {
	t.Parallel()
	for out, want := range map[string]bool{
		`{"permissionDecision":"deny"}`:  true,
		`{"decision":"block"}`:           true,
		`{"permissionDecision":"allow"}`: false,
		`{"permissionDecision":"ask"}`:   false,
		`{"modifiedArgs":{}}`:            false,
		`{}`:                             false,
	} {
		if got := refuses(mustObject(t, out)); got != want {
			t.Errorf("refuses(%s) = %v", out, got)
		}
	}
}

// The outputs of several handlers make one: the last one wins, a question asked by an
// earlier one stays asked, a refusal beats both, and context adds up.
func TestHookOutputsChain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ before, said, want string }{
		"nothing before":    {`{}`, `{"permissionDecision":"allow"}`, `{"permissionDecision":"allow"}`},
		"last wins":         {`{"modifiedArgs":1}`, `{"modifiedArgs":2}`, `{"modifiedArgs":2}`},
		"no opinion":        {`{"permissionDecision":"ask"}`, `{}`, `{"permissionDecision":"ask"}`},
		"ask beats allow":   {`{"permissionDecision":"ask","permissionDecisionReason":"r"}`, `{"permissionDecision":"allow"}`, `{"permissionDecision":"ask","permissionDecisionReason":"r"}`},
		"deny beats ask":    {`{"permissionDecision":"ask"}`, `{"permissionDecision":"deny"}`, `{"permissionDecision":"deny"}`},
		"deny beats allow":  {`{"permissionDecision":"allow"}`, `{"permissionDecision":"deny"}`, `{"permissionDecision":"deny"}`},
		"ask after allow":   {`{"permissionDecision":"allow"}`, `{"permissionDecision":"ask"}`, `{"permissionDecision":"ask"}`},
		"context adds up":   {`{"additionalContext":"a"}`, `{"additionalContext":"b"}`, `{"additionalContext":"a\n\nb"}`},
		"context of one":    {`{"additionalContext":"a"}`, `{}`, `{"additionalContext":"a"}`},
		"other members too": {`{"x":1}`, `{"y":2}`, `{"x":1,"y":2}`},
	} {
		if got := string(chain(mustObject(t, tc.before), mustObject(t, tc.said)).JSON()); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// The next handler receives the changes of the previous one, and no others.
func TestHookInputIsCarried(t *testing.T) {
	t.Parallel()
	const input = `{"hookType":"h","input":{"toolArgs":{"a":1},"toolName":"t"}}`
	for name, tc := range map[string]struct{ hook, said, want string }{
		"changed":        {"preToolUse", `{"modifiedArgs":{"a":2}}`, `{"hookType":"h","input":{"toolArgs":{"a":2},"toolName":"t"}}`},
		"new member":     {"postToolUse", `{"modifiedResult":"r"}`, `{"hookType":"h","input":{"toolArgs":{"a":1},"toolName":"t","toolResult":"r"}}`},
		"no change":      {"preToolUse", `{"permissionDecision":"allow"}`, input},
		"another's word": {"postToolUse", `{"modifiedArgs":{"a":2}}`, input},
		"unknown hook":   {"sessionEnd", `{"modifiedArgs":{"a":2}}`, input},
	} {
		call := mustObject(t, input)
		if got := string(carry(call, tc.hook, mustObject(t, tc.said)).JSON()); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
		if string(call.JSON()) != input {
			t.Errorf("%s: the input of the handler before changed too", name)
		}
	}
}
