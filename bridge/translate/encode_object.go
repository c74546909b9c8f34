package translate

import "encoding/binary"

// objectState is what encoding one object has to remember.
type objectState struct {
	seen   mask
	last   int // one more than the member before
	extras int // where the object's own extras begin
	mark   int // where its content begins in dst
	// Envelopes.
	payload *field // the case that the type chose; nil for an unknown type
	typed   bool   // the type was seen
	data    int    // where a payload that came before its type begins; 0 when none did
}

// object encodes the object at pos as the content of an object or envelope.
func (e *encoder) object(t *Table) verdict {
	s := objectState{extras: len(e.extras), mark: len(e.dst)}
	start := e.pos
	e.pos = space(e.src, e.pos+1)
	if e.pos < len(e.src) && e.src[e.pos] == '}' {
		e.pos++
		return e.finish(t, &s)
	}
	for {
		v := e.member(t, &s)
		if v == misfit { // a member with a reserved name
			return e.reserved(t, &s, start)
		}
		if v == failed {
			return v
		}
		if e.pos = space(e.src, e.pos); e.pos >= len(e.src) {
			return e.fail(KindSyntax, e.pos)
		}
		switch e.src[e.pos] {
		case ',':
			e.pos = space(e.src, e.pos+1)
		case '}':
			e.pos++
			return e.finish(t, &s)
		default:
			return e.fail(KindSyntax, e.pos)
		}
	}
}

// reserved keeps an object that uses a reserved name as a whole, so that the
// name is not mistaken for ours.
func (e *encoder) reserved(t *Table, s *objectState, start int) verdict {
	if !t.hasExtra {
		return e.misfitUnlessRepeated(start)
	}
	e.dst, e.extras, e.pos = e.dst[:s.mark], e.extras[:s.extras], start
	e.depth++ // the object's own level
	v := e.skip()
	e.depth--
	if v == fits {
		e.appendWhole(start)
	}
	return v
}

// member encodes the member at pos.
func (e *encoder) member(t *Table, s *objectState) verdict {
	start := e.pos
	i, v := e.name(t, s.last)
	if v != fits {
		return v
	}
	if e.pos >= len(e.src) {
		return e.fail(KindSyntax, e.pos)
	}
	if i < 0 {
		return e.extra(t, start)
	}
	if s.seen.has(i) {
		e.repeated = true
		return failed
	}
	s.seen.add(i)
	s.last = i + 1
	m := &t.members[i]
	mark, extras, value := len(e.dst), len(e.extras), e.pos
	switch m.role {
	case roleField:
		if f := m.field; f.card == single && e.src[e.pos] != 'n' {
			v = e.one(f, f.tag)
		} else {
			v = e.value(f)
		}
	case roleConst:
		v = e.constant(m.value)
	case roleType:
		v = e.value(m.field)
		s.typed = true
		if v == fits {
			s.payload = t.payload(e.dst[mark:])
		}
	case roleData:
		if !s.typed {
			s.data = value
			return e.skip()
		}
		v = e.payload(t, s.payload)
	}
	switch v {
	case misfit:
		e.dst, e.extras, e.pos = e.dst[:mark], e.extras[:extras], value
		return e.extra(t, start)
	case failed:
		if e.err != nil {
			e.err.under(m.name)
		}
	}
	return v
}

// extra skips the value at pos and notes the member that begins at start for
// json_extra. An object without one does not fit.
func (e *encoder) extra(t *Table, start int) verdict {
	if v := e.skip(); v != fits {
		return v
	}
	if !t.hasExtra {
		return misfit
	}
	e.extras = append(e.extras, span{start, e.pos})
	return fits
}

// name reads the member's name and colon at pos and returns the member's index,
// -1 when it is not declared. It is a misfit when the name is a reserved one.
// The first guess is the member that followed the last one the time before.
func (e *encoder) name(t *Table, last int) (int, verdict) {
	src := e.src
	if next := int(t.follows[last].Load()); next < len(t.members) {
		key := t.members[next].key
		if end := e.pos + len(key); end < len(src) && string(src[e.pos:end]) == key {
			e.pos = end
			if src[end] <= ' ' {
				e.pos = space(src, end)
			}
			return next, fits
		}
	}
	if e.pos >= len(src) || src[e.pos] != '"' {
		return 0, e.fail(KindSyntax, e.pos)
	}
	end, escaped, k := stringEnd(src, e.pos)
	if k != 0 {
		return 0, e.fail(k, end)
	}
	name := src[e.pos+1 : end-1]
	if escaped {
		// A lone surrogate keeps the name from being equal to any of ours.
		e.scratch, _ = appendUnescaped(e.scratch[:0], name)
		name = e.scratch
	}
	i := int(t.index.find(name))
	if i < 0 && len(name) > 0 && name[0] == '$' && (string(name) == absentName || string(name) == valueName) {
		return 0, misfit
	}
	colon := space(src, end)
	if colon >= len(src) || src[colon] != ':' {
		return 0, e.fail(KindSyntax, colon)
	}
	e.pos = space(src, colon+1)
	if i >= 0 {
		t.follows[last].Store(int32(i))
	}
	return i, fits
}

// constant compares the value at pos with the one that the member must have.
func (e *encoder) constant(want []byte) verdict {
	start := e.pos
	if v := e.skip(); v != fits {
		return v
	}
	if sameValue(e.src[start:e.pos], want, &e.scratch) {
		return fits
	}
	return misfit
}

// finish ends an object: a payload that waited for its type, json_extra.
func (e *encoder) finish(t *Table, s *objectState) verdict {
	if s.data != 0 {
		end := e.pos
		e.pos = s.data
		if v := e.payload(t, s.payload); v != fits {
			if e.err != nil {
				e.err.under(t.members[t.dataMember].name)
			}
			return v
		}
		e.pos = end
	}
	if len(e.extras) > s.extras || !s.seen.covers(&t.required) {
		return e.appendExtras(t, s)
	}
	return fits
}

// appendExtras appends json_extra: the members that the fields could not hold,
// and the names of the required ones that were not there.
func (e *encoder) appendExtras(t *Table, s *objectState) verdict {
	if !t.hasExtra {
		// A message without json_extra has no way to say that a required member
		// is missing; with Tidy its zero value will be read instead.
		if e.exact {
			return misfit
		}
		return fits
	}
	e.dst = binary.AppendUvarint(e.dst, extraTag)
	content, width := e.open()
	e.dst = append(e.dst, '{')
	for _, x := range e.extras[s.extras:] {
		e.dst = append(e.dst, e.src[x.start:x.end]...)
		e.dst = append(e.dst, ',')
	}
	e.extras = e.extras[:s.extras]
	if !s.seen.covers(&t.required) {
		e.dst = append(e.dst, `"`+absentName+`":[`...)
		for i := range t.members {
			if t.required.has(i) && !s.seen.has(i) {
				e.dst = append(e.dst, t.members[i].quoted...)
				e.dst = append(e.dst, ',')
			}
		}
		e.dst[len(e.dst)-1] = ']'
		e.dst = append(e.dst, ',')
	}
	e.dst[len(e.dst)-1] = '}'
	e.close(content, width)
	return fits
}

// payload finds the case for a type, given the field that holds it in wire
// form.
func (t *Table) payload(wire []byte) *field {
	if len(wire) > 0 { // empty when it holds the zero value
		_, n := varint(wire, 0)
		_, n = varint(wire, n)
		wire = wire[n:]
	}
	return t.tagged(wire)
}

// tagged returns the case for a discriminator's value, nil when there is none.
func (t *Table) tagged(tag []byte) *field {
	if i := t.tags.find(tag); i >= 0 {
		return t.cases[i]
	}
	return nil
}

// payload encodes the value at pos as the payload of an envelope, which always
// has an unrecognized case.
func (e *encoder) payload(t *Table, f *field) verdict {
	mark, extras, start := len(e.dst), len(e.extras), e.pos
	v := misfit
	if f != nil {
		v = e.one(f, f.tag)
	}
	if v == misfit {
		e.dst, e.extras, e.pos = e.dst[:mark], e.extras[:extras], start
		return e.text(unrecognizedTag)
	}
	return v
}
