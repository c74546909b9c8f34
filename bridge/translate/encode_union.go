package translate

// union encodes the value at pos as the case of a union that it fits.
func (e *encoder) union(t *Table) verdict {
	mark, extras, start := len(e.dst), len(e.extras), e.pos
	kind := kindOf(e.src[start])
	v := misfit
	if kind == jsonObject {
		f, verdict := e.choose(t)
		if verdict != fits {
			return verdict
		}
		if f != nil {
			v = e.one(f, f.tag)
		}
	} else {
		for _, f := range t.byKind[kind] {
			e.dst, e.extras, e.pos = e.dst[:mark], e.extras[:extras], start
			if v = e.one(f, f.tag); v != misfit {
				break
			}
		}
	}
	if v == misfit && t.hasUnrecognized {
		e.dst, e.extras, e.pos = e.dst[:mark], e.extras[:extras], start
		return e.text(unrecognizedTag)
	}
	return v
}

// choose finds the case for the object at pos, nil when there is none. It
// leaves pos alone.
func (e *encoder) choose(t *Table) (*field, verdict) {
	if t.discriminator != "" {
		tag, v := e.discriminator(t)
		if v != fits {
			return nil, v
		}
		if f := t.chosenBy(tag, &e.scratch); f != nil {
			return f, fits
		}
	}
	if len(t.untagged) <= 1 {
		for _, f := range t.untagged {
			return f, fits
		}
		return nil, fits
	}
	var best *field
	lowest := maxScore
	for _, f := range t.untagged {
		score, v := e.score(f)
		if v != fits {
			return nil, v
		}
		if score < lowest {
			best, lowest = f, score
		}
	}
	return best, fits
}

// chosenBy returns the case that a discriminator's value, as JSON text, chooses.
func (t *Table) chosenBy(value []byte, scratch *[]byte) *field {
	if len(value) == 0 {
		return nil
	}
	switch kindOf(value[0]) {
	case jsonString:
		s, lone := appendUnescaped((*scratch)[:0], value[1:len(value)-1])
		*scratch = s
		if lone {
			return nil
		}
		return t.tagged(s)
	case jsonBool:
		return t.tagged(value)
	case jsonNumber:
		if f := t.tagged(value); f != nil {
			return f
		}
		for _, f := range t.cases {
			for _, tag := range f.tags {
				if end, k := numberEnd([]byte(tag), 0); k == 0 && end == len(tag) && equalNumbers([]byte(tag), value) {
					return f
				}
			}
		}
	}
	return nil
}

// discriminator returns the value, as JSON text, of the first member of the
// object at pos with the discriminator's name; nil when there is none. Should
// there be a second one, encoding the case will find out and start over.
func (e *encoder) discriminator(t *Table) ([]byte, verdict) {
	i := space(e.src, e.pos+1)
	if i < len(e.src) && e.src[i] == '}' {
		return nil, fits
	}
	for {
		name, start, end, v := e.memberAt(i)
		if v != fits {
			return nil, v
		}
		if string(name) == t.discriminator {
			return e.src[start:end], fits
		}
		if i = space(e.src, end); i >= len(e.src) || e.src[i] != ',' {
			return nil, fits
		}
		i = space(e.src, i+1)
	}
}

// memberAt reads the member at i: its name without escapes, valid until the
// next call, and where its value begins and ends.
func (e *encoder) memberAt(i int) (name []byte, start, end int, v verdict) {
	quoted, start, k := keyEnd(e.src, i)
	if k != 0 {
		return nil, 0, 0, e.fail(k, start)
	}
	if end, k = valueEnd(e.src, start, e.depth); k != 0 {
		return nil, 0, 0, e.fail(k, end)
	}
	name = e.src[i+1 : quoted-1]
	for _, c := range name {
		if c == '\\' {
			e.scratch, _ = appendUnescaped(e.scratch[:0], name)
			return e.scratch, start, end, fits
		}
	}
	return name, start, end, fits
}

// The scores of a case for an object, the lowest wins.
const (
	scoreMissing = 100     // for each required member that is not there
	scoreOther   = 10      // for a case that is not a message of members
	scoreAny     = 1_000   // for JSON text, which takes everything
	maxScore     = 1 << 30 // of a case that is out of the question
)

// score rates a case for the object at pos by the object's own members. It
// leaves pos alone.
func (e *encoder) score(f *field) (int, verdict) {
	switch {
	case f.kind == kindText:
		return scoreAny, fits
	case f.kind != kindMessage || !f.message.isObject():
		return scoreOther, fits
	}
	t := f.message
	var seen mask
	score := 0
	i := space(e.src, e.pos+1)
	if i < len(e.src) && e.src[i] == '}' {
		return scoreMissing * t.missing(&seen), fits
	}
	for {
		name, start, end, v := e.memberAt(i)
		if v != fits {
			return 0, v
		}
		index := int(t.index.find(name))
		if index < 0 {
			score++
		} else {
			seen.add(index)
			m := &t.members[index]
			kind := kindOf(e.src[start])
			if m.role == roleConst && !e.sameValue(e.src[start:end], m.value) {
				return maxScore, fits
			}
			if m.field != nil && kind != jsonNull && m.field.accepts()&(1<<kind) == 0 {
				score++
			}
		}
		if i = space(e.src, end); i >= len(e.src) || e.src[i] != ',' {
			return score + scoreMissing*t.missing(&seen), fits
		}
		i = space(e.src, i+1)
	}
}

func (t *Table) missing(seen *mask) int {
	n := 0
	for i := range t.members {
		if t.required.has(i) && !seen.has(i) {
			n++
		}
	}
	return n
}
