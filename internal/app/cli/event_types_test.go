package cli

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
)

// A misspelt type is refused. What a newer CLI may have is asked for, with a warning.
func TestCheckTypes(t *testing.T) {
	t.Parallel()
	types, families := eventTypes()
	if len(types) < 50 || !slices.Contains(types, "assistant.message") || !slices.Contains(families, "tool.*") {
		t.Fatalf("types %q, families %q", types, families)
	}
	for given, want := range map[string]struct{ err, warning string }{
		"assistant.message":     {"<nil>", ""},
		"assistant.*":           {"<nil>", ""},
		"asistant.mesage":       {`--types: there is no event type "asistant.mesage"; did you mean "assistant.message"?`, ""},
		"user_message":          {`--types: there is no event type "user_message"; did you mean "user.message"?`, ""},
		"tools.*":               {`--types: there is no family of event types "tools.*"; did you mean "tool.*"?`, ""},
		"assistant.message_end": {"<nil>", "warning: --types: this program knows no event type \"assistant.message_end\"; did you mean \"assistant.message\"?\n"},
		"quantum.entangled":     {"<nil>", "warning: --types: this program knows no event type \"quantum.entangled\"\n"},
	} {
		var warnings bytes.Buffer
		if err := checkTypes([]string{"user.message", given}, &warnings); fmt.Sprint(err) != want.err ||
			warnings.String() != want.warning {
			t.Errorf("%s: %v, %q", given, err, &warnings)
		}
	}
}
