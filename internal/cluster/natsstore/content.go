package natsstore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

// The headers of the messages of a file.
const (
	// headerName is the name of the file, or the session's key for its state, quoted as in Go.
	headerName = "Copilot-Name"
	// headerTerm is the term of the writer, 0 in streams without terms.
	headerTerm = "Copilot-Term"
	// headerPart is "I/N" for part I of the N parts of a new content, or partRemoved.
	headerPart = "Copilot-Part"

	partRemoved = "removed"
)

// content is the content of a file, made of its messages in order. The parts of one new content follow each other;
// an interrupted write is followed by a new first part, or by nothing.
type content struct {
	name   string
	exists bool
	data   []byte
	// parts of a new content that came so far; pending is their data.
	parts   int
	pending []byte
	// revision is the sequence number of the last message of the content.
	revision uint64
}

// add adds the next message.
func (c *content) add(h nats.Header, data []byte, sequence uint64) error {
	name, err := strconv.Unquote(h.Get(headerName))
	if err != nil {
		return fmt.Errorf("message %d has no name: %w", sequence, err)
	}
	if part := h.Get(headerPart); part == partRemoved {
		*c = content{}
	} else {
		i, n, ok := parsePart(part)
		if !ok {
			return fmt.Errorf("message %d is part %q", sequence, part)
		}
		if i == 1 {
			c.parts, c.pending = 0, nil
		}
		if i != c.parts+1 {
			return nil // the parts before were replaced meanwhile
		}
		c.parts, c.pending = i, append(c.pending, data...)
		if i < n {
			return nil
		}
		c.data, c.exists, c.parts, c.pending = c.pending, true, 0, nil
	}
	c.name, c.revision = name, sequence
	return nil
}

// parsePart parses the number of a part and that of all parts, such as "1/3".
func parsePart(text string) (i, n int, ok bool) {
	first, second, _ := strings.Cut(text, "/")
	i, err := strconv.Atoi(first)
	if err == nil {
		n, err = strconv.Atoi(second)
	}
	return i, n, err == nil && i >= 1 && i <= n && text == fmt.Sprintf("%d/%d", i, n)
}

// split cuts data into pieces of at most size bytes; one empty piece for no data.
func split(data []byte, size int) [][]byte {
	pieces := slices.Collect(slices.Chunk(data, size))
	if len(pieces) == 0 {
		return [][]byte{nil}
	}
	return pieces
}
