package translate

// objectScan is what reading the fields of one object has found.
type objectScan struct {
	end  int  // of the message
	mark int  // where the output begins
	top  bool // it is the requested message
	// hidden members are left out: json_extra overrides them, or says that they
	// are absent.
	hidden  mask
	seen    mask
	extra   record // json_extra
	payload *field // the case that is set, of an envelope
}

// object writes the message between i and end as an object.
func (d *decoder) object(t *Table, i, end int, top bool, hidden mask) *Error {
	s := objectScan{end: end, mark: len(d.dst), top: top, hidden: hidden}
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
		if t.unset(f, m, r) {
			continue
		}
		s.seen.add(m)
		if i, err = d.member(t, &s, f, m, r); err != nil {
			return err
		}
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

// unset tells whether a record of the field f, the member m, holds what cannot be told from nothing.
func (t *Table) unset(f *field, m int, r record) bool {
	return f != nil && (f.unset(r) || m == t.typeMember && r.end == r.value)
}

// overridden returns the members of an object that its json_extra overrides.
func (d *decoder) overridden(t *Table, i, end int, top bool) (mask, *Error) {
	s := objectScan{end: end, top: top}
	for i < end {
		r, err := d.read(i, end)
		if err != nil {
			return mask{}, err
		}
		i = r.end
		if r.tag == extraTag && t.hasExtra {
			s.extra = r
		} else if f, m := d.find(t, r); m >= 0 && !t.unset(f, m, r) {
			s.seen.add(m)
		}
	}
	if s.extra.end == s.extra.value {
		return mask{}, nil
	}
	x, err := d.examine(t, &s)
	if err != nil {
		err.under("json_extra")
	}
	return x.overrides(t, &s), err
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
