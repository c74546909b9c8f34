package translate

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// unset tells whether a record holds what its field cannot tell from nothing.
func (f *field) unset(r record) bool {
	if f.card != single || f.oneof {
		return false
	}
	if f.kind == kindEnum {
		return r.number64 == 0
	}
	switch f.zero {
	case zeroImplied:
		return f.kind == kindText && r.end == r.value
	case zeroMisfit:
		return r.number64 == 0 && (r.wire() != protowire.BytesType || r.end == r.value)
	}
	return false
}

// field writes a member of which r is the first record; it returns the index
// after the last one, which for lists and maps may be another.
func (d *decoder) field(f *field, r record, end int) (int, *Error) {
	mark := len(d.dst)
	d.key(f.key)
	if f.card == single {
		return r.end, d.one(f, r)
	}
	empty := len(d.dst) + 2
	next, err := d.collection(f, r, end)
	if err == nil && len(d.dst) == empty && !f.required {
		d.dst = d.dst[:mark] // packed, and without elements: as if it were not there
	}
	return next, err
}

// collection writes the list or map of which r is the first record.
func (d *decoder) collection(f *field, r record, end int) (int, *Error) {
	if f.card == dictionary {
		return d.dictionary(f, r, end)
	}
	d.dst = append(d.dst, '[')
	for n := 0; ; {
		var err *Error
		if n, err = d.elements(f, r, n); err != nil {
			return 0, err
		}
		next, more, err := d.another(f, r, end)
		if err != nil {
			return 0, err
		}
		if !more {
			break
		}
		r = next
	}
	d.dst = append(d.dst, ']')
	return r.end, nil
}

// another reads the record after r if it belongs to the same field.
func (d *decoder) another(f *field, r record, end int) (record, bool, *Error) {
	if r.end >= end {
		return record{}, false, nil
	}
	next, err := d.read(r.end, end)
	if err != nil {
		return next, false, err
	}
	return next, next.number() == r.number() && f.matches(next), nil
}

// runEnd returns the index after the records of one field of which r is the
// first.
func (d *decoder) runEnd(f *field, r record, end int) (int, *Error) {
	for {
		next, more, err := d.another(f, r, end)
		if err != nil || !more || f.card == single {
			return r.end, err
		}
		r = next
	}
}

// elements writes the elements of a list that one record holds, after n others.
func (d *decoder) elements(f *field, r record, n int) (int, *Error) {
	if f.packedTag == 0 || r.wire() != protowire.BytesType {
		return n + 1, d.element(f, r, n)
	}
	for i := r.value; i < r.end; n++ {
		v := record{tag: f.tag, value: i}
		if f.kind == kindDouble {
			v.end = i + 8
		} else {
			v.number64, v.end = varint(d.src[:r.end], i)
		}
		if v.end < 0 || v.end > r.end {
			return n, fail(KindWire, i)
		}
		if err := d.element(f, v, n); err != nil {
			return n, err
		}
		i = v.end
	}
	return n, nil
}

func (d *decoder) element(f *field, r record, n int) *Error {
	if n > 0 {
		d.dst = append(d.dst, ',')
	}
	if err := d.one(f, r); err != nil {
		err.under(indexStep(n))
		return err
	}
	return nil
}

// dictionary writes the map of which r is the first record. If two entries have one key, it starts over: the last one
// counts.
func (d *decoder) dictionary(f *field, r record, end int) (int, *Error) {
	base := len(d.keys)
	d.dst = append(d.dst, '{')
	for {
		key, err := d.entry(f, r)
		if err != nil {
			return 0, err
		}
		d.keys = append(d.keys, key)
		next, more, err := d.another(f, r, end)
		if err != nil {
			return 0, err
		}
		if !more {
			break
		}
		r = next
	}
	if d.twice(d.keys[base:]) {
		return 0, d.startOver()
	}
	d.keys = d.keys[:base]
	d.dst = append(d.dst, '}')
	return r.end, nil
}

// entry writes a map entry, and returns where its key is. A key or value that is not there is empty.
func (d *decoder) entry(f *field, r record) (span, *Error) {
	key, value := record{}, record{tag: f.entry.tag}
	for i := r.value; i < r.end; {
		x, err := d.read(i, r.end)
		if err != nil {
			return span{}, err
		}
		switch x.tag {
		case keyField.tag:
			key = x
		case f.entry.tag:
			value = x
		}
		i = x.end
	}
	d.comma()
	var ok bool
	if d.dst, ok = appendString(d.dst, d.src[key.value:key.end]); !ok {
		return span{}, fail(KindUTF8, key.value)
	}
	d.dst = append(d.dst, ':')
	err := d.one(f.entry, value)
	if err != nil {
		err.under(keyStep(d.src[key.value:key.end]))
	}
	return span{key.value, key.end}, err
}

// twice tells whether two of the keys are the same.
func (d *decoder) twice(keys []span) bool {
	key := func(s span) []byte { return d.src[s.start:s.end] }
	if len(keys) > 16 {
		seen := make(map[string]struct{}, len(keys))
		for _, k := range keys {
			seen[string(key(k))] = struct{}{}
		}
		return len(seen) < len(keys)
	}
	for i, k := range keys {
		for _, o := range keys[:i] {
			if bytes.Equal(key(k), key(o)) {
				return true
			}
		}
	}
	return false
}

// one writes one value of a field.
func (d *decoder) one(f *field, r record) *Error {
	if len(d.dst)-d.start > d.limits.MaxOutput {
		return fail(KindSize, r.value)
	}
	switch f.kind {
	case kindString:
		var ok bool
		if d.dst, ok = appendString(d.dst, d.src[r.value:r.end]); !ok {
			return fail(KindUTF8, r.value)
		}
	case kindMessage:
		return d.message(f.message, r.value, r.end, false)
	case kindBool:
		d.dst = strconv.AppendBool(d.dst, r.number64 != 0)
	case kindInt:
		d.dst = strconv.AppendInt(d.dst, int64(r.number64), 10)
	case kindDouble:
		return d.double(r)
	case kindEnum:
		number := int32(r.number64)
		text := f.enum.byNumber[number]
		if text == "" {
			err := fail(KindEnum, r.value)
			err.Detail = strconv.Itoa(int(number))
			return err
		}
		d.dst = append(d.dst, text...)
	case kindTimestamp:
		return d.timestamp(r)
	case kindBytes:
		d.dst = append(d.dst, '"')
		d.dst = base64.StdEncoding.AppendEncode(d.dst, d.src[r.value:r.end])
		d.dst = append(d.dst, '"')
	case kindText:
		return d.text(r)
	}
	return nil
}

func (d *decoder) double(r record) *Error {
	v := 0.0
	if r.end > r.value {
		v = math.Float64frombits(binary.LittleEndian.Uint64(d.src[r.value:r.end]))
	}
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return fail(KindRange, r.value)
	}
	d.dst = appendFloat(d.dst, v)
	return nil
}

func (d *decoder) timestamp(r record) *Error {
	var seconds, nanos int64
	for i := r.value; i < r.end; {
		x, err := d.read(i, r.end)
		if err != nil {
			return err
		}
		switch x.tag {
		case 1 << 3:
			seconds = int64(x.number64)
		case 2 << 3:
			nanos = int64(int32(x.number64))
		}
		i = x.end
	}
	var ok bool
	if d.dst, ok = appendTimestamp(d.dst, seconds, nanos); !ok {
		return fail(KindRange, r.value)
	}
	return nil
}

// text copies JSON text.
func (d *decoder) text(r record) *Error {
	text := d.src[r.value:r.end]
	if k, at := d.checkText(text); k != 0 {
		return fail(k, r.value+at)
	}
	d.dst = append(d.dst, bytes.TrimSpace(text)...)
	return nil
}
