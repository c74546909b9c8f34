package chat

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestHistory(t *testing.T) {
	t.Parallel()
	s := &Screen{}
	s.Resize(40, 10)
	s.Take(Update{View: idle()})
	for i, tc := range []struct {
		text string
		want []string
	}{
		{"one", []string{"chat.Keep{one}", `send "one" now=false`}},
		{"two", []string{"chat.Keep{two}", `send "two" now=false`}},
		{"two", []string{`send "two" now=false`}},
		{" a secret", []string{`send "a secret" now=false`}},
		{" ", nil},
	} {
		s.Paste(tc.text)
		if effects := told(s.Key("enter", "")); !slices.Equal(effects, tc.want) {
			t.Errorf("%d: effects %q, want %q", i, effects, tc.want)
		}
	}
	s.Paste("new")
	for i, tc := range []struct{ key, want string }{
		{"up", "two"}, {"up", "one"}, {"up", "one"}, {"down", "two"}, {"down", "new"}, {"down", "new"},
	} {
		s.Key(tc.key, "")
		if got := s.input.String(); got != tc.want {
			t.Errorf("%d: after %s: %q, want %q", i, tc.key, got, tc.want)
		}
	}
}

// Inputs of a chat are in the next one, and the file is the person's own.
func TestInputsFile(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state", "copilot-grpc")
	path := filepath.Join(dir, "chat-history.jsonl")
	f := newInputsFile(dir, nil)
	if got := f.read(); got != nil {
		t.Errorf("before the first chat: %q", got)
	}
	for _, text := range []string{"one", "two\nlines \u00e4", strings.Repeat("x", maxInput), "\u001b[2J"} {
		if err := f.keep(text); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{dir: 0o700, path: 0o600} {
		if info, err := os.Stat(name); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	damage(t, path, "\"half a li\n12\n")
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if got, want := newInputsFile(dir, nil).read(), []string{"one", "two\nlines \u00e4", "\u241b[2J"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if info, err := os.Stat(path); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("a file that others could read: %v, %v", info.Mode(), err)
	}
}

// damage appends to a file.
func damage(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteString(text)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The file is shortened to the newest inputs.
func TestInputsFileIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := newInputsFile(dir, nil)
	for i := range 2*maxInputs + 1 {
		if err := f.keep(fmt.Sprint("input ", i)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		got := newInputsFile(dir, nil).read()
		if len(got) != maxInputs || got[0] != fmt.Sprint("input ", maxInputs+1) ||
			got[maxInputs-1] != fmt.Sprint("input ", 2*maxInputs) {
			t.Errorf("%d inputs from %q to %q", len(got), got[0], got[len(got)-1])
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("the directory has %v, %v", files, err)
	}
}

// Where inputs cannot be kept, the first one tells why, and no other one does.
func TestInputsFileFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	large, folder := filepath.Join(dir, "large"), filepath.Join(dir, "folder")
	err := errors.Join(os.Mkdir(large, 0o700), os.WriteFile(filepath.Join(large, "chat-history.jsonl"), nil, 0o600),
		os.Truncate(filepath.Join(large, "chat-history.jsonl"), maxInputsFile+1),
		os.MkdirAll(filepath.Join(folder, "chat-history.jsonl"), 0o700), os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		file *inputsFile
		want string
	}{
		"no home":            {newInputsFile("", errors.New("HOME is not defined")), "HOME is not defined"},
		"a file as a folder": {newInputsFile(filepath.Join(dir, "file"), nil), "file"},
		"a folder as a file": {newInputsFile(folder, nil), "is no file"},
		"too large":          {newInputsFile(large, nil), "16777217 bytes: delete it"},
	} {
		if got := tc.file.read(); got != nil {
			t.Errorf("%s: %q", name, got)
		}
		if err := tc.file.keep("one"); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error %v, want %q", name, err, tc.want)
		}
		if err := tc.file.keep("two"); err != nil {
			t.Errorf("%s, again: %v", name, err)
		}
	}
}
