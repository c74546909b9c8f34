package translate

import (
	"bytes"
	"cmp"
	"slices"
)

// fault is an error of reading JSON; its kind is zero when there is none.
type fault struct {
	kind   Kind
	offset int
}

// dropRepeated returns a copy of the JSON document src in which every object,
// at any level, has kept only the last of several members with one name. All
// other bytes stay as they are. It reads each byte a fixed number of times,
// however deep the document is.
func dropRepeated(src []byte, depth int) ([]byte, fault) {
	start := space(src, 0)
	end, k := valueEnd(src, start, depth)
	if k != 0 {
		return nil, fault{k, end}
	}
	if end := space(src, end); end != len(src) {
		return nil, fault{KindSyntax, end}
	}
	r := repeatFinder{src: src}
	r.value(start)
	slices.SortFunc(r.dead, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	out, from := make([]byte, 0, len(src)), 0
	for _, d := range r.dead {
		if d.start >= from {
			out = append(out, src[from:d.start]...)
		}
		from = max(from, d.end) // one within another is gone already
	}
	return append(out, src[from:]...), fault{}
}

// hasRepeated reports whether an object in the well-formed JSON value src has several members with one name.
func hasRepeated(src []byte) bool {
	r := repeatFinder{src: src}
	r.value(0)
	return len(r.dead) > 0
}

// repeatFinder finds the members that do not count in a document that is known
// to be well-formed.
type repeatFinder struct {
	src []byte
	// dead are the members that a later one replaces, each with the comma behind
	// it: there is one, since there is a later member.
	dead []span
	// open are the members so far of the objects that are being read; each object
	// owns the end of the slice from where it found it.
	open []namedSpan
}

type namedSpan struct {
	name []byte // unescaped
	span
}

// fewMembers is up to how many members of an object names are compared one by
// one.
const fewMembers = 16

// value reads the value at i and returns the index after it.
func (r *repeatFinder) value(i int) int {
	switch r.src[i] {
	case '{':
		return r.object(i)
	case '[':
		i = space(r.src, i+1)
		for r.src[i] != ']' {
			if i = space(r.src, r.value(i)); r.src[i] == ',' {
				i = space(r.src, i+1)
			}
		}
		return i + 1
	}
	end, _ := valueEnd(r.src, i, 1)
	return end
}

func (r *repeatFinder) object(i int) int {
	base := len(r.open)
	var index map[string]int // of the members in open, once there are many
	i = space(r.src, i+1)
	for r.src[i] != '}' {
		quoted, value, _ := keyEnd(r.src, i)
		m := namedSpan{name: r.src[i+1 : quoted-1], span: span{start: i}}
		if bytes.IndexByte(m.name, '\\') >= 0 {
			m.name, _ = appendUnescaped(nil, m.name)
		}
		if i = space(r.src, r.value(value)); r.src[i] == ',' {
			i = space(r.src, i+1)
		}
		m.end = i
		index = r.enter(base, index, m)
	}
	r.open = r.open[:base]
	return i + 1
}

// enter notes a member of the object whose members begin at base in open; the
// one that it replaces is dead.
func (r *repeatFinder) enter(base int, index map[string]int, m namedSpan) map[string]int {
	at, found := 0, false
	if index != nil {
		at, found = index[string(m.name)]
	} else {
		at = base + slices.IndexFunc(r.open[base:], func(o namedSpan) bool { return bytes.Equal(o.name, m.name) })
		found = at >= base
	}
	if found {
		r.dead = append(r.dead, r.open[at].span)
		r.open[at] = m
		return index
	}
	r.open = append(r.open, m)
	switch n := len(r.open) - base; {
	case index != nil:
		index[string(m.name)] = len(r.open) - 1
	case n > fewMembers:
		index = make(map[string]int, 2*n)
		for i, o := range r.open[base:] {
			index[string(o.name)] = base + i
		}
	}
	return index
}
