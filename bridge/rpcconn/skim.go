package rpcconn

import "bytes"

// maxDepth is the deepest accepted nesting; encoding/json has the same limit.
const maxDepth = 10000

// The skimmer finds the ends of JSON values. It checks structure (strings, brackets and the tokens between them), but
// not every scalar: this is enough to split a message and to ensure that a value cannot affect the message around it.
// The users of the values parse them completely.

func skipSpace(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t' || b[i] == '\n' || b[i] == '\r') {
		i++
	}
	return i
}

// skipString returns the index after the string that starts at i.
func skipString(b []byte, i int) (int, bool) {
	i++
	for start := i; ; {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return 0, false
		}
		i += n
		slashes := 0
		for i-slashes > start && b[i-slashes-1] == '\\' {
			slashes++
		}
		i++
		if slashes%2 == 0 {
			return i, true
		}
	}
}

// skipValue returns the index after the value that starts at i.
func skipValue(b []byte, i int) (int, bool) {
	if i >= len(b) {
		return 0, false
	}
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		return skipContainer(b, i)
	default:
		return skipScalar(b, i)
	}
}

// skipScalar accepts the letters of numbers and literals.
func skipScalar(b []byte, i int) (int, bool) {
	start := i
	for i < len(b) {
		switch c := b[i]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c == '-', c == '+', c == '.', c == 'E':
			i++
			continue
		}
		break
	}
	return i, i > start
}

// skipContainer tracks the kinds of the open brackets in a bit each.
func skipContainer(b []byte, i int) (int, bool) {
	var open [maxDepth/64 + 1]uint64
	depth := 0
	for i < len(b) {
		switch b[i] {
		case '"':
			end, ok := skipString(b, i)
			if !ok {
				return 0, false
			}
			i = end
			continue
		case '{', '[':
			if depth == maxDepth {
				return 0, false
			}
			word, bit := depth/64, uint64(1)<<(depth%64)
			open[word] &^= bit
			if b[i] == '{' {
				open[word] |= bit
			}
			depth++
		case '}', ']':
			depth--
			isObject := open[depth/64]&(uint64(1)<<(depth%64)) != 0
			if isObject != (b[i] == '}') {
				return 0, false
			}
			if depth == 0 {
				return i + 1, true
			}
		}
		i++
	}
	return 0, false
}

// nesting returns the number of levels of objects and arrays in a value that isOneValue has accepted.
func nesting(b []byte) (levels int) {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			end, ok := skipString(b, i)
			if !ok {
				return levels
			}
			i = end - 1
		case '{', '[':
			depth++
			levels = max(levels, depth)
		case '}', ']':
			depth--
		}
	}
	return levels
}

// isOneValue reports whether b is exactly one value.
func isOneValue(b []byte) bool {
	end, ok := skipValue(b, skipSpace(b, 0))
	return ok && skipSpace(b, end) == len(b)
}
