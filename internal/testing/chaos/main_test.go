package chaos

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// A schedule whose parent process has gone ends early, and leaves nothing behind.
func TestAbandoned(t *testing.T) {
	var out bytes.Buffer
	if code := work(strings.NewReader(`{"Seed":1,"Mode":"memory","Steps":100000}`), &out); code != 0 {
		t.Errorf("the worker's code is %d", code)
	}
	var r Report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Violations) != 1 || !strings.Contains(r.Violations[0], "context canceled") {
		t.Errorf("the report says %q", r.Violations)
	}
}
