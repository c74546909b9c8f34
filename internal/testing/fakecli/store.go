package fakecli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"time"
)

// stored is a persisted event.
type stored struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	Timestamp time.Time       `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
	raw       json.RawMessage
}

// archive holds the events of sessions that are not loaded: on disk when there
// is a home, as the real CLI does (session-state/<id>/events.jsonl).
type archive struct {
	home string
	kept map[string][]stored
}

func (a *archive) dir(id string) string { return filepath.Join(a.home, "session-state", id) }

// create opens a session's file; without a home it is nothing.
func (a *archive) create(id string) sessionFile {
	if a.home == "" {
		return sessionFile{}
	}
	if err := os.MkdirAll(a.dir(id), 0o700); err != nil {
		return sessionFile{}
	}
	f, err := os.OpenFile(filepath.Join(a.dir(id), "events.jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return sessionFile{}
	}
	return sessionFile{f}
}

func (a *archive) keep(id string, events []stored) {
	if a.home == "" {
		a.kept[id] = events
	}
}

// load returns a session's events; none means that there is no such session.
func (a *archive) load(id string) []stored {
	if a.home == "" {
		return a.kept[id]
	}
	b, err := os.ReadFile(filepath.Join(a.dir(id), "events.jsonl"))
	if err != nil {
		return nil
	}
	var events []stored
	lines := bufio.NewScanner(bytes.NewReader(b))
	lines.Buffer(nil, len(b)+1)
	for lines.Scan() {
		e := stored{raw: bytes.Clone(lines.Bytes())}
		if json.Unmarshal(e.raw, &e) == nil { // a half-written last line is no event
			events = append(events, e)
		}
	}
	return events
}

// remove deletes a session and reports whether there was one.
func (a *archive) remove(id string) bool {
	found := len(a.load(id)) > 0
	delete(a.kept, id)
	if a.home != "" {
		_ = os.RemoveAll(a.dir(id))
	}
	return found
}

// ids lists all sessions.
func (a *archive) ids() []string {
	var ids []string
	for id := range a.kept {
		ids = append(ids, id)
	}
	if a.home != "" {
		entries, _ := os.ReadDir(filepath.Join(a.home, "session-state"))
		for _, e := range entries {
			ids = append(ids, e.Name())
		}
	}
	return ids
}

// sessionFile appends events; the zero value drops them.
type sessionFile struct{ f *os.File }

func (s *sessionFile) append(e stored) {
	if s.f != nil {
		_, _ = s.f.Write(append(bytes.Clone(e.raw), '\n'))
	}
}

func (s *sessionFile) close() {
	if s.f != nil {
		_ = s.f.Close()
		s.f = nil
	}
}
