package transfer

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/copilot-grpc/copilot-grpc/bridge/session/record"
	"github.com/copilot-grpc/copilot-grpc/bridge/transfer/archive"
)

// conversation are the types of events that an imported record may have, with the members of their data that are left
// out. All others change the state of the session that the CLI restores from its record: who may approve, the mode,
// the working directory, schedules, extensions, tools of skills. They stay in the journal, which only readers see.
var conversation = map[string][]string{
	"session.start": nil, // written anew
	"user.message":  {"agentMode"}, "assistant.message": nil, "assistant.reasoning": nil,
	"assistant.turn_start": nil, "assistant.turn_end": nil, "abort": nil,
	"tool.execution_start": nil, "tool.execution_complete": nil,
	"subagent.started": nil, "subagent.completed": nil, "subagent.failed": nil,
	"session.compaction_start": nil, "session.compaction_complete": nil, "session.truncation": nil,
	"session.error": nil, "session.warning": nil, "session.info": nil, "system.notification": nil,
}

// startMembers are the members of session.start's data that an import takes over.
var startMembers = []string{
	"version", "producer", "copilotVersion", "startTime", "selectedModel", "reasoningEffort", "contextTier",
}

// eventMembers are the members of an event in the CLI's record.
var eventMembers = []string{"type", "data", "id", "timestamp", "parentId", "agentId"}

// recordWriter writes an imported record of events for a session with an id and a working directory. The record may
// have several files, the oldest first. It is for one goroutine.
type recordWriter struct {
	id, dir string
	// parents has the parent of each event that was left out, so that the chain of parents stays whole.
	parents map[string]json.RawMessage
	// written has the ids of the events that were written, and last the last one.
	written map[string]bool
	last    json.RawMessage
	started bool
	// later reports that the file is not the oldest: it begins with a copy of the state, which the files before it have.
	later bool
}

// addFile copies the lines of the next file of the record.
func (w *recordWriter) addFile(folder *os.Root, name string, to io.Writer) error {
	from, err := folder.Open(name)
	if err != nil {
		return err
	}
	defer from.Close()
	if err := w.rewrite(from, to); err != nil {
		return err
	}
	w.later = true
	return nil
}

// rewrite copies a file's lines. It returns archive.ErrInvalid if the file is not one of a record.
func (w *recordWriter) rewrite(from io.Reader, to io.Writer) error {
	if w.parents == nil {
		w.parents, w.written = map[string]json.RawMessage{}, map[string]bool{}
	}
	return eachLine(from, func(line []byte) error {
		out, err := w.event(line)
		if err != nil || out == nil {
			return err
		}
		_, err = to.Write(append(out, '\n'))
		return err
	})
}

// event returns the imported form of an event; nil leaves the event out.
func (w *recordWriter) event(line []byte) ([]byte, error) {
	var in map[string]json.RawMessage // a member that occurs twice is left once
	var head struct{ kind, id, parent string }
	if err := json.Unmarshal(line, &in); err != nil {
		return nil, invalid("%s: %v", recordFile, err)
	}
	for name, to := range map[string]*string{"type": &head.kind, "id": &head.id, "parentId": &head.parent} {
		if value := in[name]; value != nil && json.Unmarshal(value, to) != nil {
			return nil, invalid("%s: the member %q of an event is not a text", recordFile, name)
		}
	}
	if parent, gone := w.parents[head.parent]; gone && head.parent != "" {
		in["parentId"] = parent
	}
	if copied, err := w.copied(in, head.kind, head.id); copied || err != nil {
		return nil, err
	}
	omitted, known := conversation[head.kind]
	if !known {
		if head.id != "" {
			w.parents[head.id] = orNull(in["parentId"])
		}
		return nil, nil
	}
	if first := !w.started; first != (head.kind == "session.start") {
		return nil, invalid("%s: session.start is not its first event, or not its only one", recordFile)
	}
	w.started, w.last = true, in["id"]
	if head.id != "" {
		w.written[head.id] = true
	}
	out := map[string]json.RawMessage{}
	for _, name := range eventMembers {
		if value := in[name]; value != nil {
			out[name] = value
		}
	}
	data, err := w.data(head.kind, in["data"], omitted)
	if err != nil {
		return nil, err
	}
	out["data"] = data
	return marshal(out)
}

// copied reports whether an event of a later file only repeats or links what the files before it have. Its children
// become those of the last event.
func (w *recordWriter) copied(in map[string]json.RawMessage, kind, id string) (bool, error) {
	var checkpoint bool
	if value := in["checkpoint"]; value != nil && json.Unmarshal(value, &checkpoint) != nil {
		return false, invalid("%s: the member \"checkpoint\" of an event is not true or false", recordFile)
	}
	if !w.later || !checkpoint && kind != record.Link && kind != "session.start" && !w.written[id] {
		return false, nil
	}
	if id != "" && !w.written[id] {
		w.parents[id] = orNull(w.last)
	}
	return true, nil
}

// data returns the imported form of an event's data.
func (w *recordWriter) data(kind string, text json.RawMessage, omitted []string) (json.RawMessage, error) {
	var in map[string]json.RawMessage
	if err := json.Unmarshal(text, &in); err != nil {
		return nil, invalid("%s: the data of %s: %v", recordFile, kind, err)
	}
	for _, name := range omitted {
		delete(in, name)
	}
	if kind != "session.start" {
		return marshal(in)
	}
	out := map[string]json.RawMessage{"remoteSteerable": []byte("false"), "alreadyInUse": []byte("false")}
	for _, name := range startMembers {
		if value := in[name]; value != nil {
			out[name] = value
		}
	}
	var err error
	if out["sessionId"], err = json.Marshal(w.id); err != nil {
		return nil, err
	}
	if out["context"], err = json.Marshal(map[string]string{"cwd": w.dir}); err != nil {
		return nil, err
	}
	return marshal(out)
}

// orNull returns a JSON value; null for none.
func orNull(value json.RawMessage) json.RawMessage {
	if value == nil {
		return json.RawMessage("null")
	}
	return value
}

// marshal encodes a value without escapes for HTML.
func marshal(value any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(value)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// eachLine calls f for each line that is not empty. The line is valid during the call only. Lines must be UTF-8.
func eachLine(from io.Reader, f func(line []byte) error) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		line := bytes.TrimSpace(lines.Bytes())
		if len(line) == 0 {
			continue
		}
		if !utf8.Valid(line) {
			return invalid("a line is not UTF-8")
		}
		if err := f(line); err != nil {
			return err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("%w: an event has more than %d bytes", archive.ErrLimit, maxLine)
	}
	return lines.Err()
}

// invalid returns archive.ErrInvalid with a reason.
func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", archive.ErrInvalid, fmt.Sprintf(format, args...))
}
