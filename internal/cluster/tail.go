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
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// tail is what the CLI's record of a session lacks: the events of the session's log behind the last one that the record
// has. The log has each event when it was shown; the record was saved some time before the end of the last owner, or
// never. The CLI writes the same JSON into its record that it sends, and some events that it does not send
// (docs/cluster.md). A message that an earlier load has found to be lost stays lost, with what followed from it: callers know
// that it is not part of the conversation. What a caller has cut from the history stays cut.
type tail struct {
	lost  func(messageID string) bool
	has   map[string]bool // ids of the record's events
	began bool            // the log has come to an event of the record, or to the session's first one
	// skipping: the log has come to a lost message.
	skipping bool
	lines    []line
	// cuts are the events of the record at which a caller has cut it since: they go, with all behind them.
	cuts map[string]bool
}

// line is an event that the record lacks.
type line struct {
	id   string
	text []byte
}

// openTail reads the record in a folder, "" for none. lost reports whether a message is known to be lost.
func openTail(folder string, lost func(messageID string) bool) (*tail, error) {
	t := &tail{lost: lost, has: map[string]bool{}, cuts: map[string]bool{}}
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
	// AgentID is set for the events of a sub-agent.
	AgentID string          `json:"agentId"`
	Data    json.RawMessage `json:"data"`
}

// member returns a text of the event's data; "" if it has none.
func (e event) member(name string) (text string) {
	var data map[string]json.RawMessage
	if json.Unmarshal(e.Data, &data) != nil || json.Unmarshal(data[name], &text) != nil {
		return ""
	}
	return text
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
	if r, err := journal.ParseRecord(journal.Position{}, body); err == nil && (!r.Ephemeral || r.Type == cutEvent) {
		t.add(r.JSON)
	}
}

// add takes the next event of the log that belongs into the record.
func (t *tail) add(text []byte) {
	e := parseEvent(text)
	switch {
	case t.has[e.ID] || e.Type == "session.resume":
		t.skipping = false
	case e.Type == "user.message" && e.AgentID == "":
		id := e.member("messageId")
		t.skipping = id != "" && t.lost(id)
	}
	switch {
	case e.Type == cutEvent:
		t.cut(e.member("upToEventId"))
	case t.has[e.ID]:
		t.began, t.lines = true, nil
	case t.skipping:
	case t.began, len(t.has) == 0 && e.Type == firstEvent:
		t.began, t.lines = true, append(t.lines, line{e.ID, text})
	}
}

// cut removes an event and all behind it. Neither has the event if the record was saved after the cut.
func (t *tail) cut(id string) {
	if i := slices.IndexFunc(t.lines, func(l line) bool { return l.id == id }); i >= 0 {
		t.lines = t.lines[:i]
	} else if t.has[id] {
		t.cuts[id], t.lines = true, nil
	}
}

// left returns the lines of a record that no caller has cut.
func (t *tail) left(text []byte) []byte {
	end := 0
	for l := range bytes.Lines(text) {
		if len(t.cuts) > 0 && t.cuts[parseEvent(l).ID] {
			break
		}
		end += len(l)
	}
	return text[:end]
}

// The types of a session's first event, and of the event that a caller has cut the history, which the record does not have.
const firstEvent, cutEvent = "session.start", "session.snapshot_rewind"

// write adds what the record in a folder lacks, and removes what was cut.
func (t *tail) write(folder string) error {
	if len(t.lines)+len(t.cuts) == 0 || folder == "" {
		return nil
	}
	path := filepath.Join(folder, recordFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = os.MkdirAll(folder, 0o700)
	}
	if err == nil {
		text = text[:bytes.LastIndexByte(text, '\n')+1] // without a line that was cut off
		text = t.left(text)
		for _, l := range t.lines {
			text = append(append(text, l.text...), '\n')
		}
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
