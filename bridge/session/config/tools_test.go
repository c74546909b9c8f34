package config

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
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
		`[{"name":"a"},{"name":"b"},{"name":"a"}]`: {reason: fault.ToolNameConflict, field: "f[2].name"},
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
			if got, want := test.h.Handles(p), slices.Contains(test.want, p); got != want {
				t.Errorf("%s: handles %s %s: %v, want %v", name, p.Kind.Method, p.Hook, got, want)
			}
		}
	}
}
