package translate

// objectScan is what reading the fields of one object has found.
type objectScan struct {
	start, end int  // of the message
	mark       int  // where the output begins
	top        bool // it is the requested message
	// hidden members are left out: json_extra overrides them, or says that they
	// are absent.
	hidden  mask
	seen    mask
	extra   record // json_extra
	payload *field // the case that is set, of an envelope
	typed   bool   // an envelope's type is set
}

// object writes the message between i and end as an object.
func (d *decoder) object(t *Table, i, end int, top bool, hidden mask) *Error {
	s := objectScan{start: i, end: end, mark: len(d.dst), top: top, hidden: hidden}
	d.dst = append(d.dst, '{')
	d.consts(t, &hidden)
	for i < end {
		r, err := d.read(i, end)
		if err != nil {
			return err
		}
		i = r.end
		if r.tag == extraTag && t.hasExtra {
			s.extra = r
			continue
		}
		f, m := d.find(t, r)
		if m < 0 {
			continue
		}
		if s.seen.has(m) {
			return d.startOver()
		}
		if f != nil && f.unset(r) {
			continue
		}
		s.seen.add(m)
		if i, err = d.member(t, &s, f, m, r); err != nil {
			return err
		}
	}
	if s.payload != nil && !s.typed && len(s.payload.tags) > 0 && !s.hidden.has(t.typeMember) {
		return d.withType(t, &s)
	}
	return d.finishObject(t, &s)
}

// find returns the field that a record belongs to and the member it stands for;
// a negative member means none. An envelope's unrecognized payload is a member
// without a field.
func (d *decoder) find(t *Table, r record) (*field, int) {
	if f := t.field(r.number()); f != nil && f.matches(r) {
		return f, f.member
	}
	if r.tag == unrecognizedTag && t.hasUnrecognized && t.dataMember >= 0 {
		return nil, t.dataMember
	}
	return nil, -1
}

// member writes the member of which r is the first record; it returns the index
// after the last one.
func (d *decoder) member(t *Table, s *objectScan, f *field, m int, r record) (int, *Error) {
	i, name := r.end, "unrecognized"
	var err *Error
	switch {
	case f == nil && s.hidden.has(m):
	case f == nil:
		d.key(t.members[m].key)
		err = d.text(r)
	default:
		name = f.name
		if f.oneof {
			s.payload = f
		}
		if m == t.typeMember {
			s.typed = r.end > r.value
		}
		if s.hidden.has(m) {
			return d.runEnd(f, r, s.end)
		}
		i, err = d.field(f, r, s.end)
	}
	if err != nil {
		err.under(name)
	}
	return i, err
}

// startOver has the whole message written again, carefully.
func (d *decoder) startOver() *Error {
	d.again = true
	return fail(KindWire, -1)
}

// carefully writes an object that may have a field in two places, or a
// json_extra that overrides fields: it finds out before it writes.
func (d *decoder) carefully(t *Table, i, end int, top bool) *Error {
	s := objectScan{start: i, end: end, mark: len(d.dst), top: top}
	for i < end {
		r, err := d.read(i, end)
		if err != nil {
			return err
		}
		i = r.end
		if r.tag == extraTag && t.hasExtra {
			s.extra = r
			continue
		}
		f, m := d.find(t, r)
		if m < 0 {
			continue
		}
		if s.seen.has(m) {
			return d.regroup(t, s.start, end, func(end int) *Error { return d.carefully(t, 0, end, top) })
		}
		if f == nil || !f.unset(r) {
			s.seen.add(m)
		}
		if f != nil {
			if i, err = d.runEnd(f, r, end); err != nil {
				return err
			}
		}
	}
	if s.extra.end > s.extra.value {
		x, err := d.examine(t, &s)
		if err != nil {
			err.under("json_extra")
			return err
		}
		s.hidden = x.overrides(t, &s)
	}
	return d.object(t, s.start, end, top, s.hidden)
}

// withType decodes an envelope again that has a payload and no type, as if it had the type.
func (d *decoder) withType(t *Table, s *objectScan) *Error {
	tag := s.payload.tags[0]
	src := append([]byte(nil), d.src[s.start:s.end]...)
	src = appendVarint(src, t.members[t.typeMember].field.tag)
	src = appendVarint(src, uint64(len(tag)))
	src = append(src, tag...)
	d.dst = d.dst[:s.mark]
	return d.swap(src, func(end int) *Error {
		return d.object(t, 0, end, s.top, s.hidden)
	})
}

// consts writes the members that have one value.
func (d *decoder) consts(t *Table, hidden *mask) {
	if t.consts == "" {
		return
	}
	if *hidden == (mask{}) {
		d.dst = append(d.dst, t.consts...)
		return
	}
	for i := range t.members {
		if m := &t.members[i]; m.role == roleConst && !hidden.has(i) {
			d.key(m.key)
			d.dst = append(d.dst, m.value...)
		}
	}
}

func (d *decoder) comma() {
	if d.dst[len(d.dst)-1] != '{' {
		d.dst = append(d.dst, ',')
	}
}

func (d *decoder) key(key string) {
	d.comma()
	d.dst = append(d.dst, key...)
}
