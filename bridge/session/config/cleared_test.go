package config_test

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
)

func TestRemove(t *testing.T) {
	t.Parallel()
	const before = `{"model":"m","systemMessage":{"content":"x"},"hooks":true}`
	for name, test := range map[string]struct {
		names   []string
		want    string
		refused bool
	}{
		"nothing":                 {want: before},
		"a member":                {names: []string{"systemMessage"}, want: `{"model":"m","hooks":true}`},
		"an absent member":        {names: []string{"provider"}, want: before},
		"a stored member":         {names: []string{"hooks", "model"}, refused: true},
		"an absent stored one":    {names: []string{"agent", "hooks"}, want: `{"model":"m","systemMessage":{"content":"x"}}`},
		"all that can be removed": {names: []string{"systemMessage", "hooks"}, want: `{"model":"m"}`},
	} {
		s := config.State{Object: object(t, before)}
		kept := s.Object
		err := s.Remove(test.names)
		if test.refused {
			if fault.ReasonOf(err) != fault.InvalidField || string(s.Object.JSON()) != before {
				t.Errorf("%s: %v, leaves %s", name, err, s.Object.JSON())
			}
			continue
		}
		if err != nil || string(s.Object.JSON()) != test.want {
			t.Errorf("%s: %s, %v, want %s", name, s.Object.JSON(), err, test.want)
		}
		if string(kept.JSON()) != before {
			t.Errorf("%s: a copy of the state became %s", name, kept.JSON())
		}
	}
}

func TestNeedsLoad(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, after string
		want          bool
	}{
		"nothing":           {`{"model":"a"}`, `{"model":"a"}`, false},
		"changed":           {`{"model":"a","commands":[1]}`, `{"model":"b","commands":[2]}`, false},
		"added":             {`{}`, `{"commands":[]}`, false},
		"cleared at once":   {`{"mcpServers":{"x":1}}`, `{"mcpServers":{ }}`, false},
		"cleared by a load": {`{"commands":[1]}`, `{"commands":[ ]}`, true},
		"cleared before":    {`{"commands":[]}`, `{"commands":[]}`, false},
		"removed":           {`{"systemMessage":{"content":"x"}}`, `{}`, true},
		"removed list":      {`{"availableTools":["x"]}`, `{}`, true},
		"empty text":        {`{"model":"a"}`, `{"model":""}`, false},
	} {
		if got := config.NeedsLoad(object(t, test.before), object(t, test.after)); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
