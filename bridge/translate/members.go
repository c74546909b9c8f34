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

// Members yields the members of a JSON object in order, including repeated ones. A malformed object ends the
// sequence with an *Error at the first error. The spans belong to obj, except names with escapes.
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
