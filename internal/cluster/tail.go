package cluster

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// tail is what the CLI's record of a session lacks: the events of the session's log behind the last one that the record
// has. The log has each event when it was shown; the record was saved some time before the end of the last owner, or
// never. The CLI writes the same JSON into its record that it sends, and some events that it does not send
// (docs/cluster.md).
type tail struct {
	has   map[string]bool // ids of the record's events
	began bool            // the log has come to an event of the record, or to the session's first one
	lines [][]byte
}

// openTail reads the record in a folder, "" for none.
func openTail(folder string) (*tail, error) {
	t := &tail{has: map[string]bool{}}
	if folder == "" {
		return t, nil
	}
	file, err := os.Open(filepath.Join(folder, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		// A last line without its end is not part of the record: write leaves it out.
		if event := parseEvent(line); err == nil && event.ID != "" {
			t.has[event.ID] = true
		}
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// event is what a tail knows of an event.
type event struct {
	ID   string `json:"id"`
	Type string `json:"type"`
}

// parseEvent returns the zero value for what is no event's JSON.
func parseEvent(text []byte) (e event) {
	if json.Unmarshal(text, &e) != nil {
		return event{} // a line that was cut off
	}
	return e
}

// take takes the next entry of the log.
func (t *tail) take(body []byte) {
	if r, err := journal.ParseRecord(journal.Position{}, body); err == nil && !r.Ephemeral {
		t.add(r.JSON)
	}
}

// add takes the next event of the log that belongs into the record.
func (t *tail) add(text []byte) {
	switch e := parseEvent(text); {
	case t.has[e.ID]:
		t.began, t.lines = true, nil
	case t.began, len(t.has) == 0 && e.Type == firstEvent:
		t.began, t.lines = true, append(t.lines, text)
	}
}

// firstEvent is the type of a session's first event.
const firstEvent = "session.start"

// write adds what the record in a folder lacks.
func (t *tail) write(folder string) error {
	if len(t.lines) == 0 || folder == "" {
		return nil
	}
	path := filepath.Join(folder, recordFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(folder, 0o700)
	}
	if err == nil {
		text = text[:bytes.LastIndexByte(text, '\n')+1] // without a line that was cut off
		text = append(append(text, bytes.Join(t.lines, []byte{'\n'})...), '\n')
		// The record is whole at any time.
		if err = os.WriteFile(path+".new", text, 0o600); err == nil {
			err = os.Rename(path+".new", path)
		}
	}
	if err != nil {
		return fmt.Errorf("completing the CLI's record of a session: %w", err)
	}
	return nil
}

// tappedLogs shows a tail the entries of the logs that are opened.
type tappedLogs struct {
	backend.Logs

	tail *tail
}

// Open implements backend.Logs.
func (l tappedLogs) Open(session string, term, epoch uint64, visit func(uint64, []byte) error) (
	backend.Log, backend.Recovered, error,
) {
	return l.Logs.Open(session, term, epoch, func(number uint64, body []byte) error {
		l.tail.take(body)
		return visit(number, body)
	})
}
