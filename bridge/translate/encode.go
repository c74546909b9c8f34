package translate

import (
	"bytes"
	"encoding/binary"
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"

	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// verdict is how encoding one value ended.
type verdict uint8

const (
	// fits: the value is in dst, pos is behind it.
	fits verdict = iota
	// misfit: the value is well-formed as far as it was read, but this message or
	// field cannot hold it. dst, extras and pos are undefined; the caller resets
	// them.
	misfit
	// failed: e.err says why. Nothing but unwinding may follow.
	failed
)

// encoder turns JSON into wire bytes. Calls reuse it for its buffers.
type encoder struct {
	src   []byte
	pos   int
	dst   []byte
	room  int // what len(dst) may not exceed
	depth int // levels that are left
	exact bool
	err   *Error
	// repeated tells that a declared member occurred twice: err is not set, and
	// the whole value is to be encoded again without duplicates.
	repeated bool
	// extras are the members, as spans of src, that go to the json_extra of the
	// objects being encoded; each object owns the end of the slice from where it
	// found it.
	extras  []span
	scratch []byte
}

type span struct{ start, end int }

var encoders = sync.Pool{New: func() any { return new(encoder) }}

// maxKept is the largest size of reused buffers.
const maxKept = 64 << 10

func (e *encoder) release() {
	e.src, e.dst, e.err = nil, nil, nil
	e.extras = e.extras[:0]
	if cap(e.scratch) > maxKept {
		e.scratch = nil
	}
	if cap(e.extras) > maxKept/16 {
		e.extras = nil
	}
	encoders.Put(e)
}

func (e *encoder) run(t *Table, dst, json []byte, f Fidelity) ([]byte, error) {
	if len(json) > t.limits.MaxInput {
		return dst, &Error{Kind: KindSize, Message: t.name(), Offset: -1}
	}
	e.exact = f == Exact
	out, v := e.attempt(t, dst, json)
	if v == failed && e.repeated {
		clean, k := dropRepeated(json, t.limits.MaxDepth)
		if k.kind != 0 {
			return dst, &Error{Kind: k.kind, Message: t.name(), Offset: k.offset}
		}
		out, v = e.attempt(t, dst, clean)
	}
	if v == failed {
		e.err.Message = t.name()
		return dst, e.err
	}
	return out, nil
}

// attempt encodes one document.
func (e *encoder) attempt(t *Table, dst, json []byte) ([]byte, verdict) {
	e.src, e.pos, e.depth = json, 0, t.limits.MaxDepth
	e.room = len(dst) + t.limits.MaxOutput
	e.extras, e.repeated, e.err = e.extras[:0], false, nil
	e.dst = slices.Grow(dst, len(json)/2+16)
	start := space(json, 0)
	if start == len(json) {
		return dst, e.fail(KindSyntax, start)
	}
	e.pos = start
	v := e.message(t)
	if v == misfit {
		v = e.wholeValue(t, len(dst), start)
	}
	if v == fits {
		if end := space(json, e.pos); end != len(json) {
			v = e.fail(KindSyntax, end)
		}
	}
	if v == fits && len(e.dst) > e.room {
		v = e.fail(KindSize, -1)
	}
	return e.dst, v
}

// wholeValue keeps, in json_extra, a top-level value that does not fit at all.
func (e *encoder) wholeValue(t *Table, mark, start int) verdict {
	if !t.hasExtra {
		return e.fail(KindMisfit, start)
	}
	e.dst, e.pos, e.extras = e.dst[:mark], start, e.extras[:0]
	if v := e.skip(); v != fits {
		return v
	}
	e.appendWhole(start)
	return fits
}

// appendWhole appends a json_extra that holds src from start to pos as $value.
func (e *encoder) appendWhole(start int) {
	const prefix = `{"` + valueName + `":`
	e.dst = binary.AppendUvarint(e.dst, extraTag)
	e.dst = binary.AppendUvarint(e.dst, uint64(len(prefix)+e.pos-start+1))
	e.dst = append(e.dst, prefix...)
	e.dst = append(e.dst, e.src[start:e.pos]...)
	e.dst = append(e.dst, '}')
}

func (e *encoder) fail(k Kind, offset int) verdict {
	e.err = &Error{Kind: k, Offset: offset}
	return failed
}

// skip moves pos behind the value it points at, checking it.
func (e *encoder) skip() verdict {
	end, k := valueEnd(e.src, e.pos, e.depth)
	if k != 0 {
		return e.fail(k, end)
	}
	e.pos = end
	return fits
}

// message encodes the value at pos as the content of a message.
func (e *encoder) message(t *Table) verdict {
	if e.pos >= len(e.src) {
		return e.fail(KindSyntax, e.pos)
	}
	if e.depth <= 0 {
		return e.fail(KindDepth, e.pos)
	}
	if len(e.dst) > e.room {
		// Names of missing members make far more output than input.
		return e.fail(KindSize, e.pos)
	}
	e.depth--
	var v verdict
	switch t.shape {
	case jsonv1.Shape_SHAPE_OBJECT, jsonv1.Shape_SHAPE_ENVELOPE:
		if e.src[e.pos] != '{' {
			v = misfit
		} else {
			v = e.object(t)
		}
	case jsonv1.Shape_SHAPE_UNION:
		v = e.union(t)
	default:
		v = e.bare(t)
	}
	e.depth++
	return v
}

// bare encodes a list, map, value or null message.
func (e *encoder) bare(t *Table) verdict {
	mark, extras, start := len(e.dst), len(e.extras), e.pos
	v := misfit
	switch c := e.src[start]; {
	case c == 'n' && (t.shape == jsonv1.Shape_SHAPE_NULL ||
		t.shape == jsonv1.Shape_SHAPE_VALUE && t.sole.bareNull()):
		v = e.skip()
	case c == '{' && t.shape == jsonv1.Shape_SHAPE_NULL && !e.exact && emptyObject(e.src[start:]):
		v = e.skip() // says as little as null does
	case c == 'n' && (t.shape != jsonv1.Shape_SHAPE_VALUE || t.sole.kind != kindText || t.sole.card != single):
		// A null that nothing stands for.
	case t.sole != nil:
		v = e.content(t.sole)
	}
	if v == misfit && t.hasUnrecognized {
		e.dst, e.extras, e.pos = e.dst[:mark], e.extras[:extras], start
		return e.text(unrecognizedTag)
	}
	return v
}

// emptyObject tells whether src begins with an object without members.
func emptyObject(src []byte) bool {
	rest := bytes.TrimLeft(src[1:], " \t\r\n")
	return len(rest) > 0 && rest[0] == '}'
}

// bareNull reports whether null leaves the field of a bare value unset.
func (f *field) bareNull() bool {
	return f.card == single && f.kind != kindText && f.zero != zeroImplied
}

// text appends the JSON value at pos as text.
func (e *encoder) text(tag uint64) verdict {
	start := e.pos
	if v := e.skip(); v != fits {
		return v
	}
	e.dst = binary.AppendUvarint(e.dst, tag)
	e.dst = binary.AppendUvarint(e.dst, uint64(e.pos-start))
	e.dst = append(e.dst, e.src[start:e.pos]...)
	return fits
}

// open reserves room for the length of what follows, as much as the rest of the
// input suggests; close fills it in, shifting what was written when the guess
// was wrong. A guess too high is put right by moving few bytes, one too low
// cannot happen where wire bytes are no longer than their JSON.
func (e *encoder) open() (content int, width int) {
	width = protowire.SizeVarint(uint64(len(e.src) - e.pos))
	e.dst = append(e.dst, 0, 0, 0, 0, 0)
	content = len(e.dst) - 5 + width
	e.dst = e.dst[:content]
	return content, width
}

func (e *encoder) close(content, width int) {
	n := len(e.dst) - content
	need := protowire.SizeVarint(uint64(n))
	if need != width {
		e.dst = append(e.dst, 0, 0, 0, 0, 0)
		copy(e.dst[content-width+need:], e.dst[content:content+n])
		e.dst = e.dst[:content-width+need+n]
	}
	binary.PutUvarint(e.dst[content-width:], uint64(n))
}
