package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// said is an event of the CLI's own history.
type said struct {
	ID   string          `json:"id"`
	Type string          `json:"type"`
	Data json.RawMessage `json:"data"`
	raw  []byte
}

// kept is what the CLI itself keeps of a session, in order.
func (k *checker) kept(session string) (out []said, err error) {
	text, err := os.ReadFile(filepath.Join(k.home, "session-state", session, "events.jsonl"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, line := range bytes.Split(text, []byte("\n")) {
		e := said{raw: line}
		if json.Unmarshal(line, &e) == nil && e.ID != "" {
			out = append(out, e)
		}
	}
	return out, err
}

// emitted is the order in which the fake CLIs emitted the events of all sessions, by id.
func emitted(log []fakecli.Entry) map[string]int {
	out := map[string]int{}
	for i, e := range log {
		if e.Kind == fakecli.EntryEvent {
			out[e.ID] = i
		}
	}
	return out
}
