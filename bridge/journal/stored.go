package journal

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal/segment"
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
	return segment.AppendText(segment.AppendText(dst, r.Type), r.Agent)
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
	rest := segment.NewBody(body[1+len(r.ID):])
	r.Type, r.Agent = string(rest.Text()), string(rest.Text())
	if !rest.OK {
		return nil, errForm
	}
	r.JSON = slices.Clone(rest.Rest)
	return r, nil
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
	dst = segment.AppendText(dst, m.boot)
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
	rest := segment.NewBody(data[2:])
	m.clean, m.reserved, m.boot = data[1] == 1, rest.Number(), string(rest.Text())
	for n := rest.Number(); rest.OK && n > 0; n-- {
		if l := (loss{rest.Number(), rest.Number()}); rest.OK {
			m.losses = append(m.losses, l)
		}
	}
	m.overruns = rest.Number()
	if len(rest.Rest) > 0 { // earlier marks end here
		m.doubts = rest.Number()
	}
	return m, rest.OK
}
