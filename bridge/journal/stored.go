package journal

import (
	"encoding/binary"
	"errors"
)

// errForm reports bytes with a valid checksum that are not a stored event of this version.
var errForm = errors.New("not a stored event of this version")

// Flags of a stored event.
const (
	storedEphemeral = 1 << iota
	storedBridge
)

// appendHead appends the part of an event's stored form that precedes the JSON: flags, id, type, agent. The entry's
// number is its seq.
func appendHead(dst []byte, r *Record) []byte {
	flags := byte(0)
	if r.Ephemeral {
		flags |= storedEphemeral
	}
	if r.Bridge {
		flags |= storedBridge
	}
	dst = append(dst, flags)
	dst = append(dst, r.ID[:]...)
	return appendText(appendText(dst, r.Type), r.Agent)
}

func appendText(dst []byte, text string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(text))), text...)
}

// ParseRecord parses an event from its form in a log. The record has copies of the bytes.
func ParseRecord(at Position, body []byte) (*Record, error) {
	r := &Record{Pos: at}
	if len(body) < 1+len(r.ID) {
		return nil, errForm
	}
	r.Ephemeral, r.Bridge = body[0]&storedEphemeral != 0, body[0]&storedBridge != 0
	r.kept = r.Ephemeral
	copy(r.ID[:], body[1:])
	rest, ok := body[1+len(r.ID):], true
	if r.Type, rest, ok = cutText(rest); !ok {
		return nil, errForm
	}
	if r.Agent, rest, ok = cutText(rest); !ok {
		return nil, errForm
	}
	r.JSON = append([]byte(nil), rest...)
	return r, nil
}

func cutText(data []byte) (text string, rest []byte, ok bool) {
	n, size := binary.Uvarint(data)
	if size <= 0 || n > uint64(len(data)-size) {
		return "", nil, false
	}
	end := size + int(n)
	return string(data[size:end]), data[end:], true
}

// loss is a range in which durable events may be missing: those after from, up to and including to.
type loss struct{ from, to uint64 }

// mark is the journal's state in its log.
type mark struct {
	// clean reports that the journal was closed; then reserved is the last used number. Otherwise reserved is an
	// upper bound of the used numbers.
	clean    bool
	reserved uint64
	boot     string // the machine's life in which it was written
	losses   []loss
	overruns uint64 // how many there had been
	doubts   uint64 // same
}

const markVersion = 1

func (m *mark) append(dst []byte) []byte {
	clean := byte(0)
	if m.clean {
		clean = 1
	}
	dst = append(dst, markVersion, clean)
	dst = binary.AppendUvarint(dst, m.reserved)
	dst = appendText(dst, m.boot)
	dst = binary.AppendUvarint(dst, uint64(len(m.losses)))
	for _, l := range m.losses {
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, l.from), l.to)
	}
	return binary.AppendUvarint(binary.AppendUvarint(dst, m.overruns), m.doubts)
}

func parseMark(data []byte) (m mark, ok bool) {
	if len(data) < 2 || data[0] != markVersion {
		return m, false
	}
	m.clean, data = data[1] == 1, data[2:]
	number := func() (n uint64) {
		size := 0
		if n, size = binary.Uvarint(data); size <= 0 {
			ok = false
			return 0
		}
		data = data[size:]
		return n
	}
	ok = true
	m.reserved = number()
	text := false
	if m.boot, data, text = cutText(data); !text || !ok {
		return m, false
	}
	for n := number(); ok && n > 0; n-- {
		if l := (loss{number(), number()}); ok {
			m.losses = append(m.losses, l)
		}
	}
	m.overruns = number()
	if len(data) > 0 { // earlier marks end here
		m.doubts = number()
	}
	return m, ok
}
