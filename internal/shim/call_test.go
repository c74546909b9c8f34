package shim

import (
	"encoding/json"
	"testing"
)

func TestParametersAreAnObject(t *testing.T) {
	t.Parallel()
	for params, want := range map[string]string{
		``: `{}`, `null`: `{}`, `[]`: `{}`, `[null]`: `{}`, `{}`: `{}`, `{"a":1}`: `{"a":1}`, `[{"a":1}]`: `{"a":1}`,
		`[1,2]`: `{}`, `"x"`: `{}`, `5`: `{}`, // which the CLI ignores
	} {
		if got := orEmpty(json.RawMessage(params)); string(got) != want {
			t.Errorf("parameters %s are taken for %s, want %s", params, got, want)
		}
	}
}
