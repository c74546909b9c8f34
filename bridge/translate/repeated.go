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
}

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
	last := make(map[string]span) // of each name
	i = space(r.src, i+1)
	for r.src[i] != '}' {
		m := span{start: i}
		quoted, value, _ := keyEnd(r.src, i)
		name := r.src[i+1 : quoted-1]
		if bytes.IndexByte(name, '\\') >= 0 {
			name, _ = appendUnescaped(nil, name)
		}
		if i = space(r.src, r.value(value)); r.src[i] == ',' {
			i = space(r.src, i+1)
		}
		m.end = i
		if earlier, ok := last[string(name)]; ok {
			r.dead = append(r.dead, earlier)
		}
		last[string(name)] = m
	}
	return i + 1
}
