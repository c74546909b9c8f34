package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// The real CLI does not always tell events in the order in which they happen and in which it
// keeps them: behind in its work, 1.0.102 tells of permissions before what came before them.
// So what its processes say is copied on its way to the bridge, by neither of the two.

// tapes is where the copies are, a file for each process.
func tapes(dir string) string { return filepath.Join(dir, "tapes") }

// taped makes a program that is the CLI, and has what it says copied.
func taped(dir, cli string) (string, error) {
	if err := os.Mkdir(tapes(dir), 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "copilot")
	// The CLI keeps the process that the bridge started. The copy goes on until it ends.
	text := fmt.Sprintf(`#!/bin/sh
case " $* " in *" --version "*) exec '%[1]s' "$@" ;; esac
tape='%[2]s'/$$
mkfifo "$tape.pipe"
tee "$tape" <"$tape.pipe" &
exec '%[1]s' "$@" >"$tape.pipe"
`, cli, tapes(dir))
	return path, os.WriteFile(path, []byte(text), 0o700) //nolint:gosec // it is to be run
}

// toldEarly reports whether a process of the real CLI told an event before another that
// happened before it, and counts those.
func (k *checker) toldEarly(id, other string) bool {
	all, err := filepath.Glob(filepath.Join(tapes(k.dir), "*[0-9]"))
	if err != nil {
		return false
	}
	for _, tape := range all {
		said, err := os.ReadFile(tape)
		if err != nil {
			continue
		}
		if first, then := bytes.Index(said, idMember(id)), bytes.Index(said, idMember(other)); first >= 0 &&
			then > first {
			k.early[id] = true
			return true
		}
	}
	return false
}

// idMember is how an event names itself.
func idMember(id string) []byte { return []byte(`"id":"` + id + `"`) }
