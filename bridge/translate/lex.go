package translate

// The functions of this file read JSON text in place. Each takes the text and
// an index and returns the index after what it read; when the Kind is not zero
// the index is where reading failed. They check the grammar strictly, so that a
// span they accept can be copied into a JSON document verbatim.

// numberEnd reads the number that starts at b[i].
func numberEnd(b []byte, i int) (int, Kind) {
	if i < len(b) && b[i] == '-' {
		i++
	}
	switch {
	case i >= len(b):
		return i, KindSyntax
	case b[i] == '0':
		i++
	case '1' <= b[i] && b[i] <= '9':
		i = digitsEnd(b, i)
	default:
		return i, KindSyntax
	}
	if i < len(b) && b[i] == '.' {
		j := digitsEnd(b, i+1)
		if j == i+1 {
			return j, KindSyntax
		}
		i = j
	}
	if i < len(b) && b[i]|0x20 == 'e' {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		j := digitsEnd(b, i)
		if j == i {
			return j, KindSyntax
		}
		i = j
	}
	return i, 0
}

func digitsEnd(b []byte, i int) int {
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i
}

// literalEnd reads true, false or null.
func literalEnd(b []byte, i int) (int, Kind) {
	for _, w := range [...]string{"true", "false", "null"} {
		if len(b)-i >= len(w) && string(b[i:i+len(w)]) == w {
			return i + len(w), 0
		}
	}
	return i, KindSyntax
}

// space returns the index of the first byte at or after i that is not JSON
// white space.
func space(b []byte, i int) int {
	for i < len(b) {
		switch b[i] {
		case ' ', '\t', '\n', '\r':
			i++
		default:
			return i
		}
	}
	return i
}

// valueEnd reads one value of any kind that starts at b[i]; depth is how many
// levels of nesting it may have.
func valueEnd(b []byte, i, depth int) (int, Kind) {
	if i >= len(b) {
		return i, KindSyntax
	}
	switch c := b[i]; {
	case c == '"':
		end, _, k := stringEnd(b, i)
		return end, k
	case c == '{':
		return objectEnd(b, i, depth)
	case c == '[':
		return arrayEnd(b, i, depth)
	case c == '-' || c-'0' <= 9:
		return numberEnd(b, i)
	}
	return literalEnd(b, i)
}

// Check checks that text is one well-formed JSON value of at most so many levels of objects and arrays. An error is always
// an *Error.
func Check(text []byte, levels int) error {
	end, k := valueEnd(text, space(text, 0), levels)
	if k == 0 {
		if end = space(text, end); end == len(text) {
			return nil
		}
		k = KindSyntax
	}
	return &Error{Kind: k, Message: "JSON value", Offset: end}
}

func objectEnd(b []byte, i, depth int) (int, Kind) {
	if depth <= 0 {
		return i, KindDepth
	}
	i = space(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1, 0
	}
	for {
		_, v, k := keyEnd(b, i)
		if k != 0 {
			return v, k
		}
		if i, k = valueEnd(b, v, depth-1); k != 0 {
			return i, k
		}
		if i = space(b, i); i >= len(b) {
			return i, KindSyntax
		}
		switch b[i] {
		case '}':
			return i + 1, 0
		case ',':
			i = space(b, i+1)
		default:
			return i, KindSyntax
		}
	}
}

// keyEnd reads a member's name and colon; quoted is the index after the name's
// closing quote, value that of the member's value.
func keyEnd(b []byte, i int) (quoted, value int, k Kind) {
	if i >= len(b) || b[i] != '"' {
		return i, i, KindSyntax
	}
	end, _, k := stringEnd(b, i)
	if k != 0 {
		return end, end, k
	}
	i = end
	if i >= len(b) || b[i] != ':' {
		if i = space(b, i); i >= len(b) || b[i] != ':' {
			return end, i, KindSyntax
		}
	}
	return end, space(b, i+1), 0
}

func arrayEnd(b []byte, i, depth int) (int, Kind) {
	if depth <= 0 {
		return i, KindDepth
	}
	i = space(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1, 0
	}
	for {
		var k Kind
		if i, k = valueEnd(b, i, depth-1); k != 0 {
			return i, k
		}
		if i = space(b, i); i >= len(b) {
			return i, KindSyntax
		}
		switch b[i] {
		case ']':
			return i + 1, 0
		case ',':
			i = space(b, i+1)
		default:
			return i, KindSyntax
		}
	}
}

// jsonKind is the kind of a JSON value, as its first byte tells it.
type jsonKind uint8

const (
	jsonNull jsonKind = iota
	jsonBool
	jsonNumber
	jsonString
	jsonArray
	jsonObject
	jsonKinds int = iota
)

func kindOf(first byte) jsonKind {
	switch first {
	case '"':
		return jsonString
	case '{':
		return jsonObject
	case '[':
		return jsonArray
	case 't', 'f':
		return jsonBool
	case 'n':
		return jsonNull
	}
	return jsonNumber
}
