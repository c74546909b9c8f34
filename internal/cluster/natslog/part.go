package natslog

import (
	"encoding/binary"
	"errors"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
)

// kind is what an operation does.
type kind byte

const (
	// kindOpen begins an owner's term. It has no body.
	kindOpen kind = iota + 1
	// kindAppend adds the entries of its body.
	kindAppend
	// kindReplace replaces everything by the entries of its body.
	kindReplace
	// kindTrim has the number of the last entry that was trimmed and the mark, because earlier messages may be purged.
	kindTrim
	// kindDelete ends the log. It has no body.
	kindDelete
)

// version is the first byte of each message.
const version = 1

// writer identifies a log's owner in one process: a random number.
type writer uint64

// part is a message: one part of an operation.
type part struct {
	kind   kind
	term   uint64
	writer writer
	// op numbers the operations of a writer, index the parts of an operation from 0. last marks the last part.
	op, index uint64
	last      bool
	// epoch is that of the entries after the operation.
	epoch uint64
	// body is a piece of the operation's body.
	body []byte
}

// same reports whether two parts are the same attempt of the same writer.
func (p *part) same(o *part) bool { return p.writer == o.writer && p.op == o.op && p.index == o.index }

// append encodes the part.
func (p *part) append(dst []byte) []byte {
	dst = append(dst, version, byte(p.kind), flag(p.last))
	dst = binary.BigEndian.AppendUint64(dst, uint64(p.writer))
	for _, n := range []uint64{p.term, p.op, p.index, p.epoch} {
		dst = binary.AppendUvarint(dst, n)
	}
	return append(dst, p.body...)
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

var errFormat = errors.New("the message is not of this log's format")

// parsePart decodes a message. The body is a slice of data.
func parsePart(data []byte) (*part, error) {
	const fixed = 3 + 8
	if len(data) < fixed || data[0] != version || data[2] > 1 {
		return nil, errFormat
	}
	p := &part{kind: kind(data[1]), last: data[2] == 1, writer: writer(binary.BigEndian.Uint64(data[3:]))}
	if p.kind < kindOpen || p.kind > kindDelete {
		return nil, errFormat
	}
	p.body = data[fixed:]
	for _, n := range []*uint64{&p.term, &p.op, &p.index, &p.epoch} {
		var ok bool
		if *n, p.body, ok = cutUvarint(p.body); !ok {
			return nil, errFormat
		}
	}
	return p, nil
}

func cutUvarint(data []byte) (uint64, []byte, bool) {
	n, size := binary.Uvarint(data)
	if size <= 0 {
		return 0, data, false
	}
	return n, data[size:], true
}

// appendEntries encodes the body of an append or a replacement. The number of a mark is 0.
func appendEntries(dst []byte, entries []backend.Entry) []byte {
	for _, e := range entries {
		number := e.Number
		if e.Mark {
			number = 0
		}
		dst = binary.AppendUvarint(dst, number)
		dst = binary.AppendUvarint(dst, uint64(len(e.Head)+len(e.Body)))
		dst = append(append(dst, e.Head...), e.Body...)
	}
	return dst
}

// eachEntry decodes the body of an append or a replacement until f returns false.
func eachEntry(body []byte, f func(number uint64, data []byte) bool) error {
	for len(body) > 0 {
		number, rest, ok := cutUvarint(body)
		size, rest, sized := cutUvarint(rest)
		if !ok || !sized || size > uint64(len(rest)) {
			return errFormat
		}
		if !f(number, rest[:size:size]) {
			return nil
		}
		body = rest[size:]
	}
	return nil
}

// appendTrim encodes the body of a trim.
func appendTrim(dst []byte, trimmed uint64, mark []byte) []byte {
	return append(binary.AppendUvarint(dst, trimmed), mark...)
}

// parseTrim decodes the body of a trim.
func parseTrim(body []byte) (trimmed uint64, mark []byte, err error) {
	trimmed, mark, ok := cutUvarint(body)
	if !ok {
		return 0, nil, errFormat
	}
	return trimmed, mark, nil
}

// assembler joins parts to operations. The zero value is ready.
type assembler struct {
	head  *part // the operation's first part
	first uint64
	next  uint64 // index of the part that is missing
	body  []byte
}

// operation is a whole operation with the numbers of its first and last message.
type operation struct {
	part
	first, last uint64
	size        int64 // of its messages
}

// add adds the message with a number of the stream. It returns the operation that is whole with it, else nil. The
// operation's body is valid until the next call. A part that does not continue the operation before it begins another
// one, or is the rest of one whose first parts were purged, which is ignored.
func (a *assembler) add(seq uint64, p *part) *operation {
	if p.index == 0 {
		a.head, a.first, a.next, a.body = p, seq, 0, a.body[:0]
	} else if a.head == nil || p.writer != a.head.writer || p.op != a.head.op || p.index != a.next {
		a.head = nil
		return nil
	}
	a.next++
	if p.index == 0 && p.last { // the usual case needs no copy
		a.head = nil
		return &operation{part: *p, first: seq, last: seq, size: int64(len(p.body))}
	}
	a.body = append(a.body, p.body...)
	if !p.last {
		return nil
	}
	op := &operation{part: *a.head, first: a.first, last: seq, size: int64(len(a.body))}
	op.part.last, op.body = true, a.body
	a.head = nil
	return op
}
