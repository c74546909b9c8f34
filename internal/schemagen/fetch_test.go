package schemagen

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestFetchChecksWhatIsThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	version := Pins[0].Version
	if err := os.Mkdir(filepath.Join(dir, version), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range SchemaFiles {
		if err := os.WriteFile(filepath.Join(dir, version, f), []byte("{}"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := Fetch(t.Context(), dir, version); err == nil || !strings.Contains(err.Error(), "sha256 is") {
		t.Errorf("got %v, want an error about the sum", err)
	}
	if _, err := Load(filepath.Join(dir, version), version); err == nil {
		t.Error("schemas with a wrong sum were loaded")
	}
}

func TestPins(t *testing.T) {
	t.Parallel()
	p := Pins[len(Pins)-1]
	if err := checkPin(p.Version, p.SHA256); err != nil {
		t.Error(err)
	}
	swapped := [2]string{p.SHA256[1], p.SHA256[0]}
	if err := checkPin(p.Version, swapped); err == nil {
		t.Error("swapped sums were accepted")
	}
	if err := checkPin("9.9.9", p.SHA256); err == nil {
		t.Error("an unknown version was accepted")
	}
}

func TestRunQuietTellsWhatTheCommandSaid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	script := filepath.Join(dir, "tool")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho no luck >&2\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := one(filepath.Join(dir, "*")); err != nil {
		t.Error(err)
	}
	if _, err := one(filepath.Join(dir, "absent*")); err == nil {
		t.Error("no file was taken for one")
	}
	err := runQuiet(exec.CommandContext(t.Context(), script))
	if err == nil || !strings.Contains(err.Error(), "no luck") || !strings.Contains(err.Error(), "exit status 3") {
		t.Errorf("got %v", err)
	}
}
