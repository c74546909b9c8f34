package stream

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func TestFilter(t *testing.T) {
	t.Parallel()
	message := &journal.Record{Type: "assistant.message"}
	delta := &journal.Record{Type: "assistant.message_delta", Ephemeral: true}
	large := &journal.Record{Type: "system.message"}
	sub := &journal.Record{Type: "assistant.message", Agent: "a1"}
	idle := &journal.Record{Type: "session.idle", Ephemeral: true}
	all := []*journal.Record{message, delta, large, sub, idle}
	for name, test := range map[string]struct {
		f    *bridgev1.EventFilter
		want string // which of all pass
	}{
		"none given":          {nil, "mdsi"},
		"empty":               {&bridgev1.EventFilter{}, "mdsi"},
		"large too":           {&bridgev1.EventFilter{IncludeLarge: true}, "mdhsi"},
		"large by its name":   {&bridgev1.EventFilter{Types: []string{"system.message"}}, "h"},
		"a type":              {&bridgev1.EventFilter{Types: []string{"assistant.message"}}, "ms"},
		"a family":            {&bridgev1.EventFilter{Types: []string{"assistant.*"}}, "mds"},
		"a family and a type": {&bridgev1.EventFilter{Types: []string{"session.*", "assistant.message"}}, "msi"},
		"not a type":          {&bridgev1.EventFilter{ExcludeTypes: []string{"assistant.message"}}, "di"},
		"exclusion wins":      {&bridgev1.EventFilter{Types: []string{"assistant.*"}, ExcludeTypes: []string{"assistant.message_delta"}}, "ms"},
		"not a family":        {&bridgev1.EventFilter{ExcludeTypes: []string{"assistant.*"}}, "i"},
		"durable":             {&bridgev1.EventFilter{ExcludeEphemeral: true}, "ms"},
		"the main agent":      {&bridgev1.EventFilter{AgentIds: []string{"main"}}, "mdi"},
		"a sub-agent":         {&bridgev1.EventFilter{AgentIds: []string{"a1"}}, "s"},
		"both":                {&bridgev1.EventFilter{AgentIds: []string{"a1", "main"}}, "mdsi"},
		"nothing":             {&bridgev1.EventFilter{ExcludeAll: true, Types: []string{"assistant.message"}}, ""},
	} {
		f, err := NewFilter(test.f, "filter")
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for range 2 { // the second time from what it remembers
			got = ""
			for i, r := range all {
				if f.Passes(r) {
					got += "mdhsi"[i : i+1]
				}
			}
		}
		if got != test.want {
			t.Errorf("%s: %q pass, want %q", name, got, test.want)
		}
		if f.Ephemeral() != (!test.f.GetExcludeEphemeral() && !test.f.GetExcludeAll()) {
			t.Errorf("%s: ephemeral is %v", name, f.Ephemeral())
		}
	}
	for _, bad := range []string{"", "*", "a*", "a.*.b", "*.a"} {
		_, err := NewFilter(&bridgev1.EventFilter{Types: []string{"ok", bad}}, "filter")
		if f, ok := fields.AsFault(err); !ok || f.Reason != fault.InvalidField || f.Field != "filter.types" {
			t.Errorf("%q: %v", bad, err)
		}
		_, err = NewFilter(&bridgev1.EventFilter{ExcludeTypes: []string{bad}}, "filter")
		if f, ok := fields.AsFault(err); !ok || f.Reason != fault.InvalidField || f.Field != "filter.exclude_types" {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
