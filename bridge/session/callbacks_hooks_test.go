package session

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
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

// TestHookChain: each handler of a hook is asked in turn, with what those before have made of it, until one refuses. The CLI
// has one output, and none if no handler has an opinion.
func TestHookChain(t *testing.T) {
	t.Parallel()
	const nothing, deny = `{"output":{}}`, `{"output":{"permissionDecision":"deny"}}`
	for name, tc := range map[string]struct {
		handlers int
		answers  []string // of those that are asked
		want     string
	}{
		"of no handler":      {want: `{}`},
		"of one":             {handlers: 1, answers: []string{deny}, want: deny},
		"no opinions":        {handlers: 2, answers: []string{nothing, `{}`}, want: `{}`},
		"the first refuses":  {handlers: 3, answers: []string{deny}, want: deny},
		"the second refuses": {handlers: 3, answers: []string{nothing, deny}, want: deny},
		"the last has the word": {handlers: 2, answers: []string{`{"output":{"a":1,"b":1}}`, `{"output":{"b":2}}`},
			want: `{"output":{"a":1,"b":2}}`},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := onPuppet(t, &puppet{})
			s.mu.Lock()
			for range tc.handlers {
				b := roster.Brings{Handling: config.Handling{Methods: []string{callback.HooksInvoke}, HookTypes: []string{"preToolUse"}}}
				if _, err := s.participants.add(Joining{Brings: b}); err != nil {
					t.Fatal(err)
				}
			}
			if tc.handlers == 0 { // hooks of other types are of interest
				s.settings.State.Handling = config.Handling{Methods: []string{callback.HooksInvoke}, HookTypes: []string{"other"}}
			}
			s.mu.Unlock()
			got := make(chan string, 1)
			go func() {
				result, err := s.callbacks.AskMethod(t.Context(), "h", callback.HooksInvoke, []byte(`{"hookType":"preToolUse","input":{}}`))
				got <- fmt.Sprint(string(result), err)
			}()
			for i, text := range tc.answers {
				synctest.Wait()
				asked := s.callbacks.Registry().List()
				if len(asked) != 1 {
					t.Fatalf("%s: %d handlers are asked at once for answer %d", name, len(asked), i)
				}
				if _, err := resolve(t, s, asked[0].ID, callback.Responder{}, answer(text)); err != nil {
					t.Fatal(err)
				}
			}
			if result := <-got; result != tc.want+"<nil>" {
				t.Errorf("%s: the CLI gets %s, want %s", name, result, tc.want)
			}
		})
	}
}
