package translate

import (
	"bytes"
	"iter"
)

// Member is one member of a JSON object.
type Member struct {
	Name  []byte // without quotes and escapes
	Key   []byte // as it stands: with both
	Value []byte // JSON text
}

const objectText = "JSON object"

// Members yields the members of a JSON object in order, those that occur twice
// too. The first thing that is wrong with the object, found wherever it is by
// the time it is reached, ends the sequence with an *Error. The spans belong to
// obj, except for names that were written with escapes.
func Members(obj []byte) iter.Seq2[Member, error] {
	return func(yield func(Member, error) bool) {
		bad := func(k Kind, at int) { yield(Member{}, &Error{Kind: k, Message: objectText, Offset: at}) }
		i := space(obj, 0)
		if i >= len(obj) || obj[i] != '{' {
			bad(KindSyntax, i)
			return
		}
		i = space(obj, i+1)
		for first := true; ; first = false {
			if first && i < len(obj) && obj[i] == '}' {
				break
			}
			quoted, value, k := keyEnd(obj, i)
			if k != 0 {
				bad(k, value)
				return
			}
			end, k := valueEnd(obj, value, defaultMaxDepth)
			if k != 0 {
				bad(k, end)
				return
			}
			m := Member{Name: obj[i+1 : quoted-1], Key: obj[i:quoted], Value: obj[value:end:end]}
			if bytes.IndexByte(m.Name, '\\') >= 0 {
				m.Name, _ = appendUnescaped(nil, m.Name)
			}
			if i = space(obj, end); i >= len(obj) || obj[i] != ',' && obj[i] != '}' {
				bad(KindSyntax, i)
				return
			}
			if !yield(m, nil) {
				return
			}
			if obj[i] == '}' {
				break
			}
			i = space(obj, i+1)
		}
		if end := space(obj, i+1); end != len(obj) {
			bad(KindSyntax, end)
		}
	}
}

// Lookup returns the value, as JSON text, of the last member with a name; nil
// when the object has none.
func Lookup(obj []byte, name string) ([]byte, error) {
	var value []byte
	for m, err := range Members(obj) {
		if err != nil {
			return nil, err
		}
		if string(m.Name) == name {
			value = m.Value
		}
	}
	return value, nil
}

// SetMember appends to dst the object obj with one member set to a JSON value:
// in its place when it is there, at the end when it is not. Nil or empty obj
// counts as {}.
func SetMember(dst, obj []byte, name string, value []byte) ([]byte, error) {
	start := space(value, 0)
	if end, k := valueEnd(value, start, defaultMaxDepth); k != 0 || space(value, end) != len(value) {
		return dst, &Error{Kind: KindSyntax, Message: "JSON value", Offset: end}
	}
	overlay := append(append([]byte{'{'}, quoteName(name)...), ':')
	return MergeObjects(dst, obj, append(append(overlay, value...), '}'))
}

// DeleteMember appends to dst the object obj without the members of a name.
func DeleteMember(dst, obj []byte, name string) ([]byte, error) {
	w := objectWriter{out: append(dst, '{')}
	for m, err := range Members(obj) {
		if err != nil {
			return dst, err
		}
		if string(m.Name) != name {
			w.add(m.Key, m.Value)
		}
	}
	return append(w.out, '}'), nil
}

// MergeObjects appends to dst one object with the members of base in their
// order, each with the value that overlay has for it if any, followed by the
// members that only overlay has. It does not look into the values. A member
// that occurs twice in either object is written once, with its last value. Nil
// or empty objects count as {}.
func MergeObjects(dst, base, overlay []byte) ([]byte, error) {
	order, values := make([]Member, 0, 16), make(map[string][]byte)
	for _, obj := range [...][]byte{base, overlay} {
		if len(obj) == 0 {
			continue
		}
		for m, err := range Members(obj) {
			if err != nil {
				return dst, err
			}
			if _, ok := values[string(m.Name)]; !ok {
				order = append(order, m)
			}
			values[string(m.Name)] = m.Value
		}
	}
	w := objectWriter{out: append(dst, '{')}
	for _, m := range order {
		w.add(m.Key, values[string(m.Name)])
	}
	return append(w.out, '}'), nil
}

// objectWriter writes members; out ends in the opening brace at first.
type objectWriter struct {
	out  []byte
	more bool
}

func (w *objectWriter) add(key, value []byte) {
	if w.more {
		w.out = append(w.out, ',')
	}
	w.more = true
	w.out = append(append(append(w.out, key...), ':'), value...)
}

// quoteName writes a name as a JSON string. What is not UTF-8 is replaced:
// names come from our own code.
func quoteName(name string) []byte {
	out, ok := appendString(nil, []byte(name))
	if !ok {
		out, _ = appendString(nil, bytes.ToValidUTF8([]byte(name), []byte("\uFFFD")))
	}
	return out
}
