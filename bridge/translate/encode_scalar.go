package translate

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"math"
	"slices"
)

func (e *encoder) bool(f *field, tag uint64) verdict {
	c := e.src[e.pos]
	if c != 't' && c != 'f' {
		return misfit
	}
	end, k := literalEnd(e.src, e.pos)
	if k != 0 {
		return e.fail(k, end)
	}
	e.pos = end
	if v, done := f.ifZero(c == 'f'); done {
		return v
	}
	if tag != 0 {
		e.dst = binary.AppendUvarint(e.dst, tag)
	}
	if c == 't' {
		e.dst = append(e.dst, 1)
	} else {
		e.dst = append(e.dst, 0)
	}
	return fits
}

func (e *encoder) number(f *field, tag uint64) verdict {
	start := e.pos
	if c := e.src[start]; c != '-' && c-'0' > 9 {
		return misfit
	}
	end, k := numberEnd(e.src, start)
	if k != 0 {
		return e.fail(k, end)
	}
	e.pos = end
	if f.kind == kindInt {
		i, ok := parseInt(e.src[start:end])
		if !ok {
			return misfit
		}
		return e.varint(f, tag, uint64(i))
	}
	d, ok := parseFloat(e.src[start:end])
	if !ok {
		return misfit
	}
	if v, done := f.ifZero(d == 0); done {
		return v
	}
	if tag != 0 {
		e.dst = binary.AppendUvarint(e.dst, tag)
	}
	e.dst = binary.LittleEndian.AppendUint64(e.dst, math.Float64bits(d))
	return fits
}

func (e *encoder) varint(f *field, tag, value uint64) verdict {
	if v, done := f.ifZero(value == 0); done {
		return v
	}
	if tag != 0 {
		e.dst = binary.AppendUvarint(e.dst, tag)
	}
	e.dst = binary.AppendUvarint(e.dst, value)
	return fits
}

func (e *encoder) enum(f *field, tag uint64) verdict {
	s, ok, v := e.plain()
	if v != fits {
		return v
	}
	if !ok {
		return misfit
	}
	number := f.enum.byValue.find(s)
	if number == -1 {
		return misfit
	}
	return e.varint(f, tag, uint64(int64(number)))
}

func (e *encoder) timestamp(tag uint64) verdict {
	seconds, nanos, after, ok := shortTimestamp(e.src, e.pos)
	if ok {
		e.pos = after
	} else {
		s, plain, v := e.plain()
		if v != fits {
			return v
		}
		if seconds, nanos, ok = parseTimestamp(s); !ok || !plain {
			return misfit
		}
	}
	e.dst = binary.AppendUvarint(e.dst, tag)
	mark := len(e.dst)
	e.dst = append(e.dst, 0)
	if seconds != 0 {
		e.dst = append(e.dst, 1<<3)
		e.dst = binary.AppendUvarint(e.dst, uint64(seconds))
	}
	if nanos != 0 {
		e.dst = append(e.dst, 2<<3)
		e.dst = binary.AppendUvarint(e.dst, uint64(nanos))
	}
	e.dst[mark] = byte(len(e.dst) - mark - 1)
	return fits
}

// shortTimestamp reads the string at src[pos] in the form that nearly every time has, which needs no look
// for the end of the string. It returns the position after the string.
func shortTimestamp(src []byte, pos int) (seconds int64, nanos int32, after int, ok bool) {
	const length = len("2006-01-02T15:04:05.000Z")
	end := pos + 1 + length
	if end >= len(src) || src[pos] != '"' || src[end] != '"' {
		return 0, 0, pos, false
	}
	seconds, nanos, ok = parseTimestamp(src[pos+1 : end])
	return seconds, nanos, end + 1, ok
}

var strictBase64 = base64.StdEncoding.Strict()

func (e *encoder) bytes(f *field, tag uint64) verdict {
	s, ok, v := e.plain()
	if v != fits {
		return v
	}
	// The decoder passes over line breaks, which would not come back.
	if !ok || len(s)%4 != 0 || bytes.ContainsAny(s, "\r\n") {
		return misfit
	}
	if v, done := f.ifZero(len(s) == 0); done {
		return v
	}
	n := len(s) / 4 * 3
	for i := len(s) - 1; i >= 0 && s[i] == '='; i-- {
		n--
	}
	if n < 0 {
		return misfit
	}
	e.dst = binary.AppendUvarint(e.dst, tag)
	e.dst = binary.AppendUvarint(e.dst, uint64(n))
	mark := len(e.dst)
	e.dst = slices.Grow(e.dst, len(s)/4*3)
	if got, err := strictBase64.Decode(e.dst[mark:mark+len(s)/4*3], s); err != nil || got != n {
		return misfit
	}
	e.dst = e.dst[:mark+n]
	return fits
}
