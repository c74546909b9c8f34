package schemagen

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFetchChecksWhatIsThere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pins := pinned(t)
	version := pins[0].Version
	if err := os.Mkdir(filepath.Join(dir, version), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, f := range SchemaFiles {
		if err := os.WriteFile(filepath.Join(dir, version, f), []byte("{}"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Fetch(t.Context(), dir, version, pins); err == nil || !strings.Contains(err.Error(), "sha256 is") {
		t.Errorf("got %v, want an error about the sum", err)
	}
	if _, err := Load(filepath.Join(dir, version), version, pins); err == nil {
		t.Error("schemas with a wrong sum were loaded")
	}
}

func TestPins(t *testing.T) {
	t.Parallel()
	pins := pinned(t)
	p := pins[len(pins)-1]
	if err := pins.check(p.Version, p.SHA256); err != nil {
		t.Error(err)
	}
	swapped := [2]string{p.SHA256[1], p.SHA256[0]}
	if err := pins.check(p.Version, swapped); err == nil {
		t.Error("swapped sums were accepted")
	}
	if err := pins.check("9.9.9", p.SHA256); err == nil {
		t.Error("an unknown version was accepted")
	}
}

// TestPinsTakeAnother adds a version in the middle, and reads what was written.
func TestPinsTakeAnother(t *testing.T) {
	t.Parallel()
	pins := pinned(t)
	more := pins.With(Pin{"1.0.90", pins[0].SHA256})
	path := filepath.Join(t.TempDir(), "pins.txt")
	if err := more.Write(path); err != nil {
		t.Fatal(err)
	}
	again, err := ReadPins(path)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(again, more) || len(pins) != len(more)-1 {
		t.Errorf("got %v", again)
	}
	for version, want := range map[string]string{"1.0.81": "", "1.0.83": "1.0.83-2", "1.0.83-2": "1.0.82",
		"1.0.90": "1.0.89", "1.0.92": "1.0.90", "1.0.102": "1.0.92", "1.1.0": "1.0.102"} {
		if got := again.Before(version); got != want {
			t.Errorf("before %s: got %q, want %q", version, got, want)
		}
	}
}

func TestPinsErrors(t *testing.T) {
	t.Parallel()
	sum := strings.Repeat("0", 64)
	for name, text := range map[string]string{
		"one sum":    "1.0.1 " + sum + "\n",
		"no sum":     "1.0.1 x " + sum + "\n",
		"no version": "latest " + sum + " " + sum + "\n",
		"twice":      "1.0.1 " + sum + " " + sum + "\n1.0.1 " + sum + " " + sum + "\n",
	} {
		if _, err := parsePins(text); err == nil {
			t.Errorf("%s: no error", name)
		}
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
