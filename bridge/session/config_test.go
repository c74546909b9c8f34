package session

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

func TestParseTools(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]struct {
		names  string
		reason fault.Reason
		field  string
	}{
		"":                                {},
		"null":                            {},
		"[]":                              {},
		`[{"name":"a"},{"name":"B_2-x"}]`: {names: "a,B_2-x"},
		`{"name":"a"}`:                    {reason: fault.InvalidField, field: "f"},
		`[{"name":"a b"}]`:                {reason: fault.ToolNameInvalid, field: "f[0].name"},
		`[{"name":"a"},{}]`:               {reason: fault.ToolNameInvalid, field: "f[1].name"},
		`[{"name":"a"},{"name":7}]`:       {reason: fault.ToolNameInvalid, field: "f[1].name"},
		`[{"name":"a"},{"name":"b"},{"name":"a"}]`: {reason: fault.ToolNameClash, field: "f[2].name"},
	} {
		list, err := ParseTools(json.RawMessage(text), "f")
		var names []string
		for _, tool := range list {
			names = append(names, tool.Name)
		}
		if strings.Join(names, ",") != want.names || fault.ReasonOf(err) != want.reason {
			t.Errorf("%s: %v, %v", text, names, err)
		}
		if f, ok := err.(*fault.Error); ok && f.Field != want.field {
			t.Errorf("%s: field %q, want %q", text, f.Field, want.field)
		}
	}
}

func TestHandles(t *testing.T) {
	t.Parallel()
	permission := &callback.Pending{Kind: callback.ForEvent(callback.PermissionRequested)}
	input := &callback.Pending{Kind: callback.ForRequest("userInput.request")}
	before := &callback.Pending{Kind: callback.ForRequest(callback.HooksInvoke), Hook: "preToolUse"}
	after := &callback.Pending{Kind: callback.ForRequest(callback.HooksInvoke), Hook: "postToolUse"}
	for name, test := range map[string]struct {
		h    Handling
		want []*callback.Pending
	}{
		"nothing":               {},
		"permission":            {Handling{Methods: []string{"permission.requested"}}, []*callback.Pending{permission}},
		"user input":            {Handling{Methods: []string{"x", "userInput.request"}}, []*callback.Pending{input}},
		"the event that tells":  {Handling{Methods: []string{"user_input.requested"}}, nil},
		"hooks":                 {Handling{Methods: []string{"hooks.invoke"}}, []*callback.Pending{before, after}},
		"one hook":              {Handling{Methods: []string{"hooks.invoke"}, HookTypes: []string{"postToolUse"}}, []*callback.Pending{after}},
		"a hook's type alone":   {Handling{HookTypes: []string{"postToolUse"}}, nil},
		"a hook's type, others": {Handling{Methods: []string{"permission.requested"}, HookTypes: []string{"postToolUse"}}, []*callback.Pending{permission}},
	} {
		for _, p := range []*callback.Pending{permission, input, before, after} {
			if got, want := test.h.handles(p), slices.Contains(test.want, p); got != want {
				t.Errorf("%s: handles %s %s: %v, want %v", name, p.Kind.Method, p.Hook, got, want)
			}
		}
	}
}

// What the CLI is told at each step of a session's life is always everything.
func TestEffectiveConfiguration(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakecli.Script{})
	own := tools("own")
	r.open(Opening{Config: object(t, `{"model":"m","streaming":true,"enableX":{"b":1,"a":2}}`), Tools: &own})
	has(t, r.last("session.create"), `"model":"m","streaming":true,"enableX":{"b":1,"a":2}`,
		`"tools":[{"name":"own"}]`, `"requestPermission":true`, `"sessionId":"s1"`)
	lacks(t, r.last("session.create"), "requestUserInput", `"hooks"`)

	// Tools alone are set as such; an unchanged set is not sent again.
	p, _, err := r.s.Join(t.Context(), Joining{Name: "one", Tools: tools("a", "b")})
	if err != nil {
		t.Fatal(err)
	}
	has(t, r.last("session.tools.set"), `"tools":[{"name":"own"},{"name":"a"},{"name":"b"}]`)
	if err := r.s.Sync(t.Context()); err != nil || len(r.received("session.tools.set")) != 1 || len(r.received("session.resume")) != 0 {
		t.Errorf("a sync without changes: %v, %d, %d", err, len(r.received("session.tools.set")), len(r.received("session.resume")))
	}

	// A switch takes everything anew, and leaves no event.
	q, _, err := r.s.Join(t.Context(), Joining{Name: "two", Tools: tools("c"), Handling: Handling{Methods: []string{"userInput.request", "hooks.invoke"}}})
	if err != nil {
		t.Fatal(err)
	}
	all := []string{`"model":"m"`, `"enableX":{"b":1,"a":2}`, `"requestPermission":true`, `"requestUserInput":true`, `"hooks":true`, `"disableResume":true`}
	has(t, r.last("session.resume"), append(all, `"tools":[{"name":"own"},{"name":"a"},{"name":"b"},{"name":"c"}]`)...)

	// Others' switches stay when one leaves.
	r.s.Leave(p)
	r.tasks.Wait()
	has(t, r.last("session.tools.set"), `"tools":[{"name":"own"},{"name":"c"}]`)
	r.s.Leave(q)
	r.tasks.Wait()
	has(t, r.last("session.resume"), `"tools":[{"name":"own"}]`)
	lacks(t, r.last("session.resume"), "requestUserInput", `"hooks"`)

	// A caller's own resume merges, and leaves its event.
	if _, err := r.s.Resume(t.Context(), Opening{Config: object(t, `{"model":"n"}`)}); err != nil {
		t.Fatal(err)
	}
	has(t, r.last("session.resume"), `"model":"n","streaming":true`, `"continuePendingWork":false`, `"tools":[{"name":"own"}]`)
	lacks(t, r.last("session.resume"), `"disableResume":true`)
	r.awaitEvent("session.resume")
}

func TestToolNamesClash(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakecli.Script{})
	own := tools("own")
	r.open(Opening{Tools: &own})
	p, _, err := r.s.Join(t.Context(), Joining{Tools: tools("a")})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = r.s.Join(t.Context(), Joining{Tools: tools("x", "a")})
	wantReason(t, err, fault.ToolNameClash)
	_, _, err = r.s.Join(t.Context(), Joining{Tools: tools("own")})
	wantReason(t, err, fault.ToolNameClash)
	other := tools("own", "b")
	wantReason(t, r.s.Change(t.Context(), p, &other, nil), fault.ToolNameClash)
	same := tools("a", "b")
	if err := r.s.Change(t.Context(), p, &same, nil); err != nil {
		t.Error(err)
	}
	taken := tools("b")
	_, err = r.s.Resume(t.Context(), Opening{Config: object(t, `{"model":"kept out"}`), Tools: &taken})
	wantReason(t, err, fault.ToolNameClash)
	if err := r.s.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	has(t, r.last("session.tools.set"), `[{"name":"own"},{"name":"a"},{"name":"b"}]`)
	if got := r.s.config.String("model"); got != "" {
		t.Errorf("a refused resume left model %q", got)
	}
}
