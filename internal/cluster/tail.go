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

// tail is what the CLI's record of a session lacks: the events of the session's log behind the record's last one. The
// log has each event when it was shown; the record was saved some time before the end of the last owner. The CLI
// writes the same JSON into its record that it sends (docs/cluster.md).
type tail struct {
	last  string // id of the record's last event; "" if there is no record
	found bool   // it is in the log
	lines [][]byte
}

// openTail reads the end of the record in a folder, "" for none.
func openTail(folder string) (*tail, error) {
	if folder == "" {
		return &tail{}, nil
	}
	file, err := os.Open(filepath.Join(folder, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return &tail{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	t := &tail{}
	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if id := eventID(line); id != "" {
			t.last = id
		}
		if errors.Is(err, io.EOF) {
			return t, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// eventID returns the id of an event's JSON, "" if it has none.
func eventID(text []byte) string {
	var event struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(text, &event) // a line that was cut off has no id
	return event.ID
}

// take takes the next entry of the log.
func (t *tail) take(body []byte) {
	text, kept, err := journal.StoredEvent(body)
	if t.last == "" || err != nil || !kept {
		return
	}
	switch id := eventID(text); {
	case id == t.last:
		t.found, t.lines = true, nil
	case t.found:
		t.lines = append(t.lines, text)
	}
}

// write adds what the record lacks.
func (t *tail) write(folder string) error {
	if len(t.lines) == 0 {
		return nil
	}
	path := filepath.Join(folder, recordFile)
	text, err := os.ReadFile(path)
	if err == nil {
		text = text[:bytes.LastIndexByte(text, '\n')+1] // without a line that was cut off
		text = append(append(text, bytes.Join(t.lines, []byte{'\n'})...), '\n')
		err = os.WriteFile(path, text, 0o600)
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
