package outbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
)

const (
	logFile = "log"
	// maxSpent bounds the bytes of the log that are not needed any more. Above it the log is written anew.
	maxSpent = 64 << 10
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

// append adds a line.
func (l *log) append(r record) error {
	line, err := json.Marshal(r)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if err := l.disk.Append(logFile, l.size, line); err != nil {
		l.torn = true
		return err
	}
	l.size += int64(len(line))
	return nil
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

// rewrite replaces the log by the lines of the prompts that are alive, and the state.
func (l *log) rewrite(alive map[uint64]bool, state []byte) error {
	var lines []byte
	old := log{disk: l.disk}
	err := old.read(func(n uint64, line, _ []byte) {
		if alive[n] {
			lines = append(lines, line...)
		}
	}, func([]byte) {})
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, ErrDamaged) {
		return err
	}
	last, err := json.Marshal(record{State: state})
	if err != nil {
		return err
	}
	lines = append(append(lines, last...), '\n')
	if err := l.disk.Write(logFile, lines); err != nil {
		return err
	}
	l.size, l.torn = int64(len(lines)), false
	return nil
}
