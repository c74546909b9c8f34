package outbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"strconv"
)

const (
	logFile = "log"
	// maxSpent bounds the bytes of the log that are not needed any more. Above it the log is written anew.
	maxSpent = 64 << 10
	// maxEnvelope bounds the bytes of a line around its JSON.
	maxEnvelope = 48
)

// record is a line of the log: a prompt with its number, or the state, of which the last one counts.
type record struct {
	N      uint64          `json:"n,omitempty"`
	Prompt json.RawMessage `json:"prompt,omitempty"`
	State  json.RawMessage `json:"state,omitempty"`
}

// log is the file to which an outbox appends. It is not safe for concurrent use.
type log struct {
	disk Disk
	size int64
	// torn says that something else than lines may follow after size bytes, so that the log must be written anew.
	torn bool
}

// append adds lines in one write.
func (l *log) append(lines []record) error {
	text := encode(lines)
	if err := l.disk.Append(logFile, l.size, text); err != nil {
		l.torn = true
		return err
	}
	l.size += int64(len(text))
	return nil
}

// encode returns records as lines. Their members are JSON without line breaks.
func encode(lines []record) []byte {
	size := 0
	for _, r := range lines {
		size += len(r.Prompt) + len(r.State) + maxEnvelope
	}
	text := make([]byte, 0, size)
	for _, r := range lines {
		if r.Prompt != nil {
			text = append(text, `{"n":`...)
			text = strconv.AppendUint(text, r.N, 10)
			text = append(append(text, `,"prompt":`...), r.Prompt...)
		} else {
			text = append(append(text, `{"state":`...), r.State...)
		}
		text = append(text, "}\n"...)
	}
	return text
}

// read calls prompt and state with the content of each line. It returns the disk's error, fs.ErrNotExist if there is no
// log, and ErrDamaged if a whole line is not readable; then it goes on with the next one. A line without an end belongs
// to a write that did not finish.
func (l *log) read(prompt func(n uint64, line, text []byte), state func(text []byte)) error {
	text, err := l.disk.Read(logFile)
	if err != nil {
		return err
	}
	l.size, l.torn = 0, false
	for len(text) > 0 {
		end := bytes.IndexByte(text, '\n')
		if end < 0 {
			l.torn = true
			break
		}
		line := text[:end+1]
		text = text[end+1:]
		l.size += int64(len(line))
		var r record
		switch json.Unmarshal(line, &r); {
		case r.Prompt != nil && r.N > 0:
			prompt(r.N, line, r.Prompt)
		case r.State != nil:
			state(r.State)
		default:
			l.torn, err = true, ErrDamaged
		}
	}
	return err
}

// rewrite replaces the log by the lines of the prompts that are alive, and others, among them the state. It
// reads the old log only for prompts that are not among the others.
func (l *log) rewrite(alive map[uint64]bool, others []record) error {
	for _, r := range others {
		delete(alive, r.N)
	}
	var lines []byte
	if len(alive) > 0 {
		old := log{disk: l.disk}
		err := old.read(func(n uint64, line, _ []byte) {
			if alive[n] {
				lines = append(lines, line...)
			}
		}, func([]byte) {})
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrDamaged) {
			return err
		}
	}
	lines = append(lines, encode(others)...)
	if err := l.disk.Write(logFile, lines); err != nil {
		return err
	}
	l.size, l.torn = int64(len(lines)), false
	return nil
}
