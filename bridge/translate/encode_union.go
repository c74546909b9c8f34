package translate

import "bytes"

// chooser finds the case of a union for one JSON object. It only looks ahead: the encoder reads the object
// afterwards, and reports what is wrong with a member that occurs twice.
type chooser struct {
	src     []byte
	pos     int // where the object begins
	depth   int // levels that are left
	scratch []byte
}

// union encodes the value at pos as the case of a union that it fits.
func (e *encoder) union(t *Table) verdict {
	mark, extras, start := len(e.dst), len(e.extras), e.pos
	kind := kindOf(e.src[start])
	v := misfit
	if kind == jsonObject {
		c := chooser{src: e.src, pos: start, depth: e.depth, scratch: e.scratch}
		f, err := c.choose(t)
		e.scratch = c.scratch
		if err != nil {
			e.err = err
			return failed
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

// choose finds the case for the object, nil when there is none.
func (c *chooser) choose(t *Table) (*field, *Error) {
	if t.discriminator != "" {
		tag, err := c.discriminator(t)
		if err != nil {
			return nil, err
		}
		if f := t.chosenBy(tag, &c.scratch); f != nil {
			return f, nil
		}
	}
	if len(t.untagged) <= 1 {
		for _, f := range t.untagged {
			return f, nil
		}
		return nil, nil
	}
	var best *field
	lowest := maxScore
	for _, f := range t.untagged {
		score, err := c.score(f)
		if err != nil {
			return nil, err
		}
		if score < lowest {
			best, lowest = f, score
		}
	}
	return best, nil
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
// object with the discriminator's name; nil when there is none. Should
// there be a second one, encoding the case will find out and start over.
func (c *chooser) discriminator(t *Table) ([]byte, *Error) {
	var value []byte
	err := c.members(func(name []byte, start, end int) bool {
		if string(name) == t.discriminator {
			value = c.src[start:end]
		}
		return value == nil
	})
	return value, err
}

// members calls visit for the members of the object until it returns false: with the name, which is valid until it
// returns, and where the value begins and ends.
func (c *chooser) members(visit func(name []byte, start, end int) bool) *Error {
	i := space(c.src, c.pos+1)
	if i < len(c.src) && c.src[i] == '}' {
		return nil
	}
	for {
		name, start, end, err := c.memberAt(i)
		if err != nil {
			return err
		}
		if i = space(c.src, end); !visit(name, start, end) || i >= len(c.src) || c.src[i] != ',' {
			return nil
		}
		i = space(c.src, i+1)
	}
}

// memberAt reads the member at i: its name without escapes, valid until the
// next call, and where its value begins and ends.
func (c *chooser) memberAt(i int) (name []byte, start, end int, err *Error) {
	quoted, start, k := keyEnd(c.src, i)
	if k != 0 {
		return nil, 0, 0, fail(k, start)
	}
	if end, k = valueEnd(c.src, start, c.depth); k != 0 {
		return nil, 0, 0, fail(k, end)
	}
	name = c.src[i+1 : quoted-1]
	for _, b := range name {
		if b == '\\' {
			c.scratch, _ = appendUnescaped(c.scratch[:0], name)
			return c.scratch, start, end, nil
		}
	}
	return name, start, end, nil
}

// The scores of a case for an object, the lowest wins.
const (
	scoreMissing = 100     // for each required member that is not there
	scoreOther   = 10      // for a case that is not a message of members
	scoreAny     = 1_000   // for JSON text, which takes everything
	maxScore     = 1 << 30 // of a case that is out of the question
)

// score rates a case for the object by the object's own members.
func (c *chooser) score(f *field) (int, *Error) {
	switch {
	case f.kind == kindText:
		return scoreAny, nil
	case f.kind != kindMessage || !f.message.isObject():
		return scoreOther, nil
	}
	t := f.message
	var seen mask
	score := 0
	err := c.members(func(name []byte, start, end int) bool {
		index := int(t.index.find(name))
		if index < 0 {
			score++
			return true
		}
		seen.add(index)
		m := &t.members[index]
		if m.role == roleConst && !sameValue(c.src[start:end], m.value, &c.scratch) {
			score = maxScore
			return false
		}
		if kind := kindOf(c.src[start]); m.field != nil && kind != jsonNull && m.field.accepts()&(1<<kind) == 0 {
			score++
		}
		return true
	})
	if score < maxScore {
		score += scoreMissing * t.missing(&seen)
	}
	return score, err
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

// sameValue compares two well-formed JSON values; lists and objects by their
// text. It unescapes strings into scratch.
func sameValue(a, b []byte, scratch *[]byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if kindOf(a[0]) != kindOf(b[0]) {
		return false
	}
	switch kindOf(a[0]) {
	case jsonNumber:
		return equalNumbers(a, b)
	case jsonString:
		out, lone := appendUnescaped((*scratch)[:0], a[1:len(a)-1])
		n := len(out)
		out, _ = appendUnescaped(out, b[1:len(b)-1])
		*scratch = out
		return !lone && bytes.Equal(out[:n], out[n:])
	}
	return false
}
