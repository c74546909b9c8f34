package fsck

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"math"
	"path"
	"strconv"
	"strings"
)

const (
	promptSuffix = ".prompt"
	// maxLine bounds a line of an outbox: a prompt in it has at most 64 KiB, the state a few of these.
	maxLine = 64 << 20
	// maxPrompts bounds the prompts of an outbox that are remembered: a session has at most 256.
	maxPrompts = 1 << 16
)

// outbox is the state of a session's prompts.
type outbox struct {
	Next    uint64 `json:"next"`
	Entries []struct {
		N   uint64   `json:"n"`
		IDs []string `json:"ids"`
		Was []string `json:"was"`
	} `json:"entries"`
}

// outbox verifies an outbox, and returns how many acknowledged prompts wait. Its state is the one in a log if that has it.
func (c *checker) outbox(dir string, later place, inLog bool) (waiting int) {
	var state outbox
	found := map[uint64]bool{}
	for _, e := range c.list(dir) {
		name := path.Join(dir, e.Name())
		n, err := strconv.ParseUint(strings.TrimSuffix(e.Name(), promptSuffix), 10, 64)
		switch {
		case err == nil && strings.HasSuffix(e.Name(), promptSuffix):
			found[n] = true
			c.object(name, nil)
		case e.Name() != "log":
			c.other(name)
		case !inLog:
			c.outboxLog(place{file: name, to: math.MaxInt64}, &state, found)
		}
	}
	if inLog {
		c.outboxLog(later, &state, found)
	}
	for _, e := range state.Entries {
		if len(e.IDs)+len(e.Was) == 0 {
			continue
		}
		if waiting++; !found[e.N] {
			c.Damage.add(dir, "lacks prompt %d, which was acknowledged", e.N)
		}
	}
	return waiting
}

// object verifies a file that is a JSON object.
func (c *checker) object(name string, to any) {
	text, err := c.read(name, maxText)
	if err != nil {
		c.unread(name, err)
		return
	}
	if to == nil {
		to = &map[string]json.RawMessage{}
	}
	if err := json.Unmarshal(text, to); err != nil {
		c.Damage.add(name, "is not a JSON object of this form: %v", err)
	}
}

// outboxLog reads the lines of an outbox.
func (c *checker) outboxLog(in place, state *outbox, found map[uint64]bool) {
	name := in.file
	f, _, err := c.open(name)
	if err != nil {
		c.unread(name, err)
		return
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewReader(io.NewSectionReader(f, in.from, in.to-in.from))
	for n := 1; ; n++ {
		line, err := readLine(lines)
		if err == io.EOF {
			if len(line) > 0 {
				c.Notes.add(name, "ends with a line of %d bytes that was not finished", len(line))
			}
			return
		}
		if err != nil {
			c.unread(name, err)
			return
		}
		var r struct {
			N      uint64                     `json:"n"`
			Prompt map[string]json.RawMessage `json:"prompt"`
			State  json.RawMessage            `json:"state"`
		}
		err = json.Unmarshal(line, &r)
		switch {
		case err == nil && r.N > 0 && r.Prompt != nil:
			if len(found) < maxPrompts {
				found[r.N] = true
			}
		case err == nil && r.State != nil:
			*state = outbox{}
			err = json.Unmarshal(r.State, state)
		case err == nil:
			err = errors.New("neither a prompt nor a state")
		}
		if err != nil {
			c.Damage.add(name, "has a damaged line %d: %v", n, err)
		}
	}
}

// readLine reads a line, with its end.
func readLine(r *bufio.Reader) (line []byte, err error) {
	for err = bufio.ErrBufferFull; err == bufio.ErrBufferFull; {
		var part []byte
		part, err = r.ReadSlice('\n')
		if line = append(line, part...); len(line) > maxLine {
			return nil, errors.New("it has a line that is too long")
		}
	}
	return line, err
}
