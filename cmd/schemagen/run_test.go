package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// pins are those of the project.
var pins = filepath.Join("..", "..", "internal", "gen", "schemagen", "pins.txt")

// bridge is the folder of the project's API.
var bridge = filepath.Join("..", "..", "proto", "copilot", "bridge", "v1")

func TestRunRefuses(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"unknown flag", []string{"-nonsense"}, "not defined"},
		{"stray argument", []string{"-pins", pins, "-schemas", empty, "more"}, "usage:"},
		{"no schema", []string{"-pins", pins, "-schemas", filepath.Join(empty, "1.0.81")}, "1.0.81"},
		{"update of nothing", []string{"update"}, "usage:"},
		{"update to no version", []string{"update", "-dir", empty, "-pins", pins, "-cli", "latest"}, "not a version"},
		{"changelog of nothing", []string{"changelog"}, "usage:"},
		{"changelog of the oldest", []string{"changelog", "1.0.81"}, "oldest"},
		{"version that is none", []string{"fetch", "-dir", empty, "../x"}, "not a version"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			err := run(t.Context(), tc.args, io.Discard)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

// TestRunWritesNothingOnError: a version that is not pinned must not touch what
// is there.
func TestRunWritesNothingOnError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	schemas := filepath.Join(dir, "9.9.9")
	if err := os.Mkdir(schemas, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range []string{"api.schema.json", "session-events.schema.json"} {
		if err := os.WriteFile(filepath.Join(schemas, f), []byte("{}"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, ledger := filepath.Join(dir, "proto"), filepath.Join(dir, "ledger.json")
	err := run(t.Context(), []string{"-schemas", schemas, "-out", out, "-ledger", ledger, "-pins", pins}, io.Discard)
	if err == nil || !strings.Contains(err.Error(), "not pinned") {
		t.Fatalf("got %v", err)
	}
	for _, p := range []string{out, ledger} {
		if _, err := os.Stat(p); err == nil {
			t.Errorf("%s was written", p)
		}
	}
}
