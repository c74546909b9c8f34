package translate

import (
	"encoding/binary"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// special marks, with their high bit, the bytes of x that end or interrupt the
// plain run of a JSON string: a quote, a backslash, a control character. Marks
// above the lowest one may be wrong (a borrow), the lowest never is.
func special(x uint64) uint64 {
	quote := x ^ ones*'"'
	slash := x ^ ones*'\\'
	return ((x - ones*0x20) | (quote - ones) | (slash - ones)) &^ x & highs
}

// plainEnd returns the index of the first byte at or after i that special
// marks (len(b) when there is none), and whether a byte before it is not ASCII.
func plainEnd(b []byte, i int) (int, bool) {
	var wide uint64
	for i+8 <= len(b) {
		x := binary.LittleEndian.Uint64(b[i:])
		if m := special(x); m != 0 {
			n := bits.TrailingZeros64(m) // 8*index+7
			wide |= x & (1<<uint(n-7) - 1)
			return i + n>>3, wide&highs != 0
		}
		wide |= x
		i += 8
		// Strings beyond the first word are likely to be long.
		for i+16 <= len(b) {
			x, y := binary.LittleEndian.Uint64(b[i:]), binary.LittleEndian.Uint64(b[i+8:])
			if special(x)|special(y) != 0 {
				break
			}
			wide |= x | y
			i += 16
		}
	}
	high := byte(0)
	for i < len(b) {
		c := b[i]
		if c < 0x20 || c == '"' || c == '\\' {
			break
		}
		high |= c
		i++
	}
	return i, wide&highs != 0 || high >= utf8.RuneSelf
}

// stringEnd reads the string whose opening quote is b[i]. The content lies
// between i+1 and end-1; escaped tells whether it contains a backslash.
func stringEnd(b []byte, i int) (end int, escaped bool, k Kind) {
	start := i + 1
	i, wide := plainEnd(b, start)
	if i < len(b) && b[i] == '"' && !wide {
		return i + 1, false, 0
	}
	for {
		if i >= len(b) {
			return i, escaped, KindSyntax
		}
		switch b[i] {
		case '"':
			if wide && !utf8.Valid(b[start:i]) {
				return start, escaped, KindUTF8
			}
			return i + 1, escaped, 0
		case '\\':
			escaped = true
			n := escapeLen(b, i)
			if n == 0 {
				return i, escaped, KindSyntax
			}
			var w bool
			i, w = plainEnd(b, i+n)
			wide = wide || w
		default:
			return i, escaped, KindSyntax
		}
	}
}

// escapeLen returns the length of the escape sequence at b[i], which is a
// backslash; 0 when it is malformed.
func escapeLen(b []byte, i int) int {
	if i+1 >= len(b) {
		return 0
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if _, ok := hex4(b, i+2); ok {
			return 6
		}
	}
	return 0
}

func hex4(b []byte, i int) (rune, bool) {
	if i+4 > len(b) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[i:i+4]), 16, 16)
	return rune(n), err == nil
}

// appendUnescaped appends the string that the well-formed content of a JSON
// string stands for. A surrogate without its partner is appended in its three
// generalised UTF-8 bytes, so that different strings stay different, and
// reported: such a string cannot be held by a protobuf field.
func appendUnescaped(dst, content []byte) (_ []byte, lone bool) {
	for i := 0; i < len(content); {
		if content[i] != '\\' {
			j := i
			// A run between escapes holds no other byte that plainEnd stops at.
			i, _ = plainEnd(content, i)
			dst = append(dst, content[j:i]...)
			continue
		}
		c := content[i+1]
		if c != 'u' {
			dst = append(dst, unescaped[c])
			i += 2
			continue
		}
		r, _ := hex4(content, i+2)
		i += 6
		if utf16.IsSurrogate(r) {
			if next, ok := lowSurrogate(content, i); ok && r < 0xdc00 {
				dst = utf8.AppendRune(dst, utf16.DecodeRune(r, next))
				i += 6
				continue
			}
			lone = true
			dst = append(dst, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0x3f, 0x80|byte(r)&0x3f)
			continue
		}
		dst = utf8.AppendRune(dst, r)
	}
	return dst, lone
}

func lowSurrogate(b []byte, i int) (rune, bool) {
	if i+6 > len(b) || b[i] != '\\' || b[i+1] != 'u' {
		return 0, false
	}
	r, ok := hex4(b, i+2)
	return r, ok && 0xdc00 <= r && r < 0xe000
}

var unescaped = [256]byte{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

// appendString appends s as a JSON string. It reports false when s is not
// UTF-8.
func appendString(dst, s []byte) ([]byte, bool) {
	dst = append(dst, '"')
	i, wide := plainEnd(s, 0)
	dst = append(dst, s[:i]...)
	for i < len(s) {
		if c := s[i]; c < 0x20 || c == '"' || c == '\\' {
			dst = appendEscape(dst, c)
			i++
			continue
		}
		var w bool
		dst, i, w = appendPlain(dst, s, i)
		wide = wide || w
	}
	return append(dst, '"'), !wide || utf8.Valid(s)
}

// appendPlain appends the bytes from i up to the first that special marks. It
// copies while it looks, which beats looking first where escapes are dense.
func appendPlain(dst, s []byte, i int) (_ []byte, end int, wide bool) {
	var high uint64
	for i+8 <= len(s) {
		x := binary.LittleEndian.Uint64(s[i:])
		dst = binary.LittleEndian.AppendUint64(dst, x)
		if m := special(x); m != 0 {
			n := bits.TrailingZeros64(m) // 8*index+7
			high |= x & (1<<uint(n-7) - 1)
			return dst[:len(dst)-8+n>>3], i + n>>3, high&highs != 0
		}
		high |= x
		i += 8
	}
	last := byte(0)
	for i < len(s) {
		c := s[i]
		if c < 0x20 || c == '"' || c == '\\' {
			break
		}
		last |= c
		dst = append(dst, c)
		i++
	}
	return dst, i, high&highs != 0 || last >= utf8.RuneSelf
}

func appendEscape(dst []byte, c byte) []byte {
	const hex = "0123456789abcdef"
	if short := escapes[c]; short != 0 {
		return append(dst, '\\', short)
	}
	return append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
}

var escapes = [256]byte{
	'"': '"', '\\': '\\', '\b': 'b', '\f': 'f', '\n': 'n', '\r': 'r', '\t': 't',
}
