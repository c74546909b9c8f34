package journal

import (
	"encoding/json"
	"maps"
	"unicode/utf8"
)

// MaxEventBytes is the limit above which an event's long strings are shortened for callers.
const MaxEventBytes = 768 << 10

// cutMark marks the end of a shortened string.
const cutMark = "…"

// Cut returns the JSON value with its long strings shortened so that it fits into
// limit bytes, and whether that was needed. Keys, numbers and structure stay. A value
// that is too large for other reasons becomes null.
func Cut(value []byte, limit int) ([]byte, bool) {
	if len(value) <= limit {
		return value, false
	}
	for keep := limit / 2; keep >= 16; keep /= 4 {
		if out := cutStrings(value, keep); len(out) <= limit {
			return out, true
		}
	}
	return []byte("null"), true
}

// cutStrings shortens the text of every string value of well-formed JSON to at most keep bytes.
func cutStrings(value []byte, keep int) []byte {
	out := make([]byte, 0, min(len(value), 4*keep))
	for i := 0; i < len(value); {
		if value[i] != '"' {
			out = append(out, value[i])
			i++
			continue
		}
		end := stringEnd(value, i)
		if end-i-2 <= keep || isKey(value, end) {
			out = append(out, value[i:end]...)
		} else {
			out = append(out, shorten(value[i:end], keep)...)
		}
		i = end
	}
	return out
}

// stringEnd returns the index after the string that begins at i.
func stringEnd(value []byte, i int) int {
	for i++; i < len(value); i++ {
		switch value[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(value)
}

// isKey reports whether a colon follows.
func isKey(value []byte, i int) bool {
	for ; i < len(value); i++ {
		switch value[i] {
		case ' ', '\t', '\r', '\n':
		default:
			return value[i] == ':'
		}
	}
	return false
}

// shorten returns a string of well-formed JSON with at most keep bytes of its text, up to the end of a character.
func shorten(text []byte, keep int) []byte {
	var s string
	_ = json.Unmarshal(text, &s)
	if len(s) <= keep {
		return text
	}
	for !utf8.RuneStart(s[keep]) {
		keep--
	}
	short, _ := json.Marshal(s[:keep] + cutMark)
	return short
}

// maxEnvelopeMember bounds a member beside the data in an event whose data is dropped. Ids, the type and the time are
// far smaller.
const maxEnvelopeMember = 4 << 10

// CutEvent is like Cut, but preserves the event's envelope even if none of its data fits.
func CutEvent(event []byte, limit int) ([]byte, bool) {
	out, cut := Cut(event, limit)
	if !cut || string(out) != "null" {
		return out, cut
	}
	var envelope map[string]json.RawMessage
	if json.Unmarshal(event, &envelope) != nil {
		return out, true
	}
	maps.DeleteFunc(envelope, func(_ string, v json.RawMessage) bool { return len(v) > maxEnvelopeMember })
	envelope["data"] = json.RawMessage("{}")
	if out, err := json.Marshal(envelope); err == nil && len(out) <= limit {
		return out, true
	}
	return []byte(`{}`), true
}
