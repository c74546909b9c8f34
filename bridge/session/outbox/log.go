package outbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
)

// maxEnvelope bounds the bytes of a line around its JSON.
const maxEnvelope = 48

// record is a line of what the disk has of an outbox: a prompt with its number, or the state of all prompts.
type record struct {
	N      uint64          `json:"n"`
	Prompt json.RawMessage `json:"prompt"`
	State  json.RawMessage `json:"state"`
}

// encode returns what the disk is to have. The caller holds Outbox.mu.
func (s *state) encode() ([]byte, error) {
	head, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	text := make([]byte, 0, len(head)+maxEnvelope+s.inLog())
	for _, e := range s.Entries {
		if e.line == nil {
			continue
		}
		text = append(text, `{"n":`...)
		text = strconv.AppendUint(text, e.N, 10)
		text = append(append(text, `,"prompt":`...), e.line...)
		text = append(text, "}\n"...)
	}
	text = append(append(text, `{"state":`...), head...)
	return append(text, "}\n"...), nil
}

// inLog returns the size of the prompts that have no file. The caller holds Outbox.mu.
func (s *state) inLog() (size int) {
	for _, e := range s.Entries {
		if e.line != nil {
			size += len(e.line) + maxEnvelope
		}
	}
	return size
}

// decode returns what the disk has: the prompts by number, and the state. Earlier versions appended each change, so there may
// be many states, of which the last one counts, and a last line without an end, of a write that did not finish. If a
// line is not readable, decode goes on with the next one and returns ErrDamaged.
func decode(text []byte) (prompts map[uint64][]byte, st state, err error) {
	prompts = map[uint64][]byte{}
	for line := range bytes.Lines(text) {
		var r record
		bad := json.Unmarshal(line, &r)
		switch {
		case line[len(line)-1] != '\n':
			continue
		case r.Prompt != nil && r.N > 0:
			prompts[r.N] = r.Prompt
		case r.State != nil:
			st = state{}
			bad = json.Unmarshal(r.State, &st)
		case bad == nil:
			bad = errors.New("a line is neither a prompt nor a state")
		}
		if bad != nil {
			err = understood(bad)
		}
	}
	return prompts, st, err
}
