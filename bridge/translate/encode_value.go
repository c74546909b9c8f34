package translate

import (
	"encoding/binary"
	"unicode/utf8"
)

// value encodes the value at pos as a member: null and empty collections have
// their rules there.
func (e *encoder) value(f *field) verdict {
	if e.src[e.pos] == 'n' && (f.kind != kindText || f.card != single) {
		return e.null(f)
	}
	if f.card == single {
		return e.one(f, f.tag)
	}
	mark := len(e.dst)
	v := e.content(f)
	if v == fits && len(e.dst) == mark && !f.required && e.exact {
		return misfit // unset stands for absence, not for an empty collection
	}
	return v
}

func (e *encoder) null(f *field) verdict {
	if v := e.skip(); v != fits {
		return v
	}
	if f.nullable || !e.exact && !f.required && !f.spareNull {
		return fits
	}
	return misfit
}

// content encodes the value at pos without the rules for null and emptiness.
func (e *encoder) content(f *field) verdict {
	switch {
	case f.card == list && e.src[e.pos] == '[':
		return e.list(f)
	case f.card == dictionary && e.src[e.pos] == '{':
		return e.dictionary(f)
	case f.card == single:
		return e.one(f, f.tag)
	}
	return misfit
}

// list encodes the array at pos.
func (e *encoder) list(f *field) verdict {
	if e.depth <= 0 {
		return e.fail(KindDepth, e.pos)
	}
	e.pos = space(e.src, e.pos+1)
	if e.pos < len(e.src) && e.src[e.pos] == ']' {
		e.pos++
		return fits
	}
	if f.packedTag == 0 {
		return e.elements(f, f.tag)
	}
	e.dst = binary.AppendUvarint(e.dst, f.packedTag)
	content, width := e.open()
	v := e.elements(f, 0)
	e.close(content, width)
	return v
}

func (e *encoder) elements(f *field, tag uint64) verdict {
	e.depth--
	defer func() { e.depth++ }()
	for i := 0; ; i++ {
		if e.pos >= len(e.src) {
			return e.fail(KindSyntax, e.pos)
		}
		if v := e.one(f, tag); v != fits {
			if v == failed && e.err != nil {
				e.err.under(indexStep(i))
			}
			return v
		}
		if more, v := e.next(']'); !more {
			return v
		}
	}
}

// next moves behind the comma or the closing bracket after an element, and reports whether another element follows.
func (e *encoder) next(closing byte) (more bool, v verdict) {
	if e.pos = space(e.src, e.pos); e.pos < len(e.src) {
		switch e.src[e.pos] {
		case ',':
			e.pos = space(e.src, e.pos+1)
			return true, fits
		case closing:
			e.pos++
			return false, fits
		}
	}
	return false, e.fail(KindSyntax, e.pos)
}

// keyField is the key of every map entry.
var keyField = field{name: "key", number: 1, tag: 1<<3 | 2}

// dictionary encodes the object at pos as map entries.
func (e *encoder) dictionary(f *field) verdict {
	if e.depth <= 0 {
		return e.fail(KindDepth, e.pos)
	}
	start := e.pos
	e.depth--
	defer func() { e.depth++ }()
	e.pos = space(e.src, e.pos+1)
	if e.pos < len(e.src) && e.src[e.pos] == '}' {
		e.pos++
		return fits
	}
	for {
		e.dst = binary.AppendUvarint(e.dst, f.tag)
		content, width := e.open()
		if v := e.entry(f.entry); v == misfit {
			return e.misfitUnlessRepeated(start)
		} else if v != fits {
			return v
		}
		e.close(content, width)
		if more, v := e.next('}'); !more {
			return v
		}
	}
}

// misfitUnlessRepeated is the verdict on the object at start, of which a member does not fit. Of several members with
// one name the last one counts, so the member may not count: an object with such members is encoded again.
func (e *encoder) misfitUnlessRepeated(start int) verdict {
	if end, k := valueEnd(e.src, start, e.depth+1); k == 0 && hasRepeated(e.src[start:end]) {
		e.repeated = true
		return failed
	}
	return misfit
}

// entry encodes the member at pos as the content of a map entry.
func (e *encoder) entry(f *field) verdict {
	if e.pos >= len(e.src) || e.src[e.pos] != '"' {
		return e.fail(KindSyntax, e.pos)
	}
	start := e.pos
	if v := e.string(&keyField, keyField.tag); v != fits {
		return v
	}
	end := e.pos
	colon := space(e.src, end)
	if colon >= len(e.src) || e.src[colon] != ':' {
		return e.fail(KindSyntax, colon)
	}
	if e.pos = space(e.src, colon+1); e.pos >= len(e.src) {
		return e.fail(KindSyntax, e.pos)
	}
	v := e.one(f, f.tag)
	if v == failed && e.err != nil {
		e.err.under(keyStep(e.src[start+1 : end-1]))
	}
	return v
}

// one encodes the value at pos as one value of a field; tag is zero within a
// packed list.
func (e *encoder) one(f *field, tag uint64) verdict {
	switch f.kind {
	case kindString:
		return e.string(f, tag)
	case kindMessage:
		e.dst = binary.AppendUvarint(e.dst, tag)
		content, width := e.open()
		v := e.message(f.message)
		if v == fits {
			e.close(content, width)
		}
		return v
	case kindBool:
		return e.bool(f, tag)
	case kindInt, kindDouble:
		return e.number(f, tag)
	case kindEnum:
		return e.enum(f, tag)
	case kindTimestamp:
		return e.timestamp(tag)
	case kindBytes:
		return e.bytes(f, tag)
	}
	return e.text(tag)
}

// zero ends the encoding of a zero value that the field's presence may not
// tell from nothing; done is false when it is to be written.
func (f *field) ifZero(isZero bool) (v verdict, done bool) {
	if !isZero || f.zero == zeroKept {
		return fits, false
	}
	if f.zero == zeroImplied {
		return fits, true
	}
	return misfit, true
}

func (e *encoder) string(f *field, tag uint64) verdict {
	src, start := e.src, e.pos+1
	if src[e.pos] != '"' {
		return misfit
	}
	i, wide := plainEnd(src, start)
	if i >= len(src) {
		return e.fail(KindSyntax, i)
	}
	if src[i] != '"' {
		return e.escaped(tag, start, i, wide)
	}
	s := src[start:i]
	if wide && !utf8.Valid(s) {
		return e.fail(KindUTF8, start)
	}
	e.pos = i + 1
	if v, done := f.ifZero(len(s) == 0); done {
		return v
	}
	if tag < 0x80 && len(s) < 0x80 {
		e.dst = append(e.dst, byte(tag), byte(len(s)))
	} else {
		e.dst = binary.AppendUvarint(e.dst, tag)
		e.dst = binary.AppendUvarint(e.dst, uint64(len(s)))
	}
	e.dst = append(e.dst, s...)
	return fits
}

// escaped encodes a string of which src[start:i] is plain and src[i] is not.
// Such a string is never empty.
func (e *encoder) escaped(tag uint64, start, i int, wide bool) verdict {
	src := e.src
	dst := binary.AppendUvarint(e.dst, tag)
	e.dst = dst
	content, width := e.open()
	dst = append(e.dst, src[start:i]...)
	for {
		if i >= len(src) {
			return e.fail(KindSyntax, i)
		}
		switch c := src[i]; {
		case c == '"':
			if wide && !utf8.Valid(src[start:i]) {
				return e.fail(KindUTF8, start)
			}
			e.dst, e.pos = dst, i+1
			e.close(content, width)
			return fits
		case c < 0x20 || c == '\\' && i+1 >= len(src):
			return e.fail(KindSyntax, i)
		case c != '\\':
			var w bool
			dst, i, w = appendPlain(dst, src, i)
			wide = wide || w
		case unescaped[src[i+1]] != 0:
			dst = append(dst, unescaped[src[i+1]])
			i += 2
		default:
			n := unicodeEscape(src, i)
			if n == 0 {
				return e.fail(KindSyntax, i)
			}
			var lone bool
			if dst, lone = appendUnescaped(dst, src[i:i+n]); lone {
				return misfit
			}
			i += n
		}
	}
}

// unicodeEscape returns the length of the \u escape, or pair of them, at b[i];
// 0 when it is malformed.
func unicodeEscape(b []byte, i int) int {
	n := escapeLen(b, i)
	if n != 6 {
		return 0
	}
	r, _ := hex4(b, i+2)
	if 0xd800 <= r && r < 0xdc00 {
		if _, ok := lowSurrogate(b, i+6); ok {
			return 12
		}
	}
	return n
}

// content reads the string at pos, taking escapes out; ok is false when no
// protobuf string can hold it.
func (e *encoder) plain() (s []byte, ok bool, v verdict) {
	if e.src[e.pos] != '"' {
		return nil, false, fits
	}
	start := e.pos + 1
	end, escaped, k := stringEnd(e.src, e.pos)
	if k != 0 {
		return nil, false, e.fail(k, end)
	}
	e.pos = end
	s = e.src[start : end-1]
	if !escaped {
		return s, true, fits
	}
	var lone bool
	e.scratch, lone = appendUnescaped(e.scratch[:0], s)
	return e.scratch, !lone, fits
}
