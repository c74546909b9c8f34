package translate

// fault is an error of reading JSON; its kind is zero when there is none.
type fault struct {
	kind   Kind
	offset int
}

// dropRepeated returns a copy of the JSON document src in which every object,
// at any level, has kept only the last of several members with one name. All
// other bytes stay as they are.
func dropRepeated(src []byte, depth int) ([]byte, fault) {
	r := repeatDropper{src: src, out: make([]byte, 0, len(src))}
	start := space(src, 0)
	end, k := valueEnd(src, start, depth)
	if k != 0 {
		return nil, fault{k, end}
	}
	if end := space(src, end); end != len(src) {
		return nil, fault{KindSyntax, end}
	}
	r.value(start)
	return r.out, fault{}
}

// repeatDropper copies a document that is known to be well-formed.
type repeatDropper struct {
	src, out []byte
}

// value copies the value at i and returns the index after it.
func (r *repeatDropper) value(i int) int {
	switch r.src[i] {
	case '{':
		return r.object(i)
	case '[':
		r.out = append(r.out, '[')
		i = space(r.src, i+1)
		for r.src[i] != ']' {
			i = space(r.src, r.value(i))
			if r.src[i] == ',' {
				r.out = append(r.out, ',')
				i = space(r.src, i+1)
			}
		}
		r.out = append(r.out, ']')
		return i + 1
	}
	end, _ := valueEnd(r.src, i, 1)
	r.out = append(r.out, r.src[i:end]...)
	return end
}

func (r *repeatDropper) object(i int) int {
	start := i
	last := make(map[string]int) // where the last member of a name begins
	i = r.each(start, func(name []byte, at, _ int) int {
		last[string(name)] = at
		return -1
	})
	r.out = append(r.out, '{')
	r.each(start, func(name []byte, at, value int) int {
		if last[string(name)] != at {
			return -1
		}
		if r.out[len(r.out)-1] != '{' {
			r.out = append(r.out, ',')
		}
		r.out = append(r.out, r.src[at:value]...)
		return r.value(value)
	})
	r.out = append(r.out, '}')
	return i
}

// each calls visit with the unescaped name of every member of the object at i,
// and where the member and its value begin. visit returns the index after the
// value, or -1 when it has not read it.
func (r *repeatDropper) each(i int, visit func(name []byte, at, value int) int) int {
	i = space(r.src, i+1)
	for r.src[i] != '}' {
		at := i
		quoted, value, _ := keyEnd(r.src, i)
		name, _ := appendUnescaped(nil, r.src[at+1:quoted-1])
		if i = visit(name, at, value); i < 0 {
			i, _ = valueEnd(r.src, value, len(r.src))
		}
		if i = space(r.src, i); r.src[i] == ',' {
			i = space(r.src, i+1)
		}
	}
	return i + 1
}
