package reorder

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf16"
)

// Timestamp is the time of an event in milliseconds, as if all months had 31 days, and
// zero if it is not in the form in which the CLI writes it. The member is looked for from the
// end, where it is; no string can contain its text, for its quotes would be escaped.
func Timestamp(event []byte) int64 {
	const key, form = `"timestamp":"`, `2006-01-02T15:04:05.000Z"`
	// Nearly every event has a parent, whose position is known. The text after it is too short for another
	// parent.
	const rest = `,"parentId":"00000000-0000-0000-0000-000000000000"}`
	i := len(event) - len(key) - len(form) - len(rest)
	if i < 0 || string(event[i:i+len(key)]) != key || string(event[len(event)-len(rest):][:13]) != rest[:13] {
		i = bytes.LastIndex(event, []byte(key))
	}
	if i < 0 || len(event) < i+len(key)+len(form) {
		return 0
	}
	t := event[i+len(key):][:len(form)]
	if t[4] != '-' || t[7] != '-' || t[10] != 'T' || t[13] != ':' || t[16] != ':' || t[19] != '.' || t[23] != 'Z' {
		return 0
	}
	for _, k := range [...]int{0, 1, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18, 20, 21, 22} {
		if t[k]-'0' > 9 {
			return 0
		}
	}
	pair := func(i int) int64 { return int64(t[i]-'0')*10 + int64(t[i+1]-'0') }
	day := ((pair(0)*100+pair(2))*12+pair(5))*31 + pair(8)
	at := ((day*24+pair(11))*60+pair(14))*60 + pair(17)
	return at*1000 + pair(20)*10 + int64(t[22]-'0')
}

// hasSize reports whether an event's piece of text is n bytes long, or n units of UTF-16.
func hasSize(event []byte, n int64) bool {
	_, rest, ok := bytes.Cut(event, []byte(`"deltaContent":`))
	if !ok {
		_, rest, ok = bytes.Cut(event, []byte(`"inputDelta":`))
	}
	var text string
	if !ok || json.NewDecoder(bytes.NewReader(rest)).Decode(&text) != nil {
		return false
	}
	return int64(len(text)) == n || int64(len(utf16.Encode([]rune(text)))) == n
}

// number is a member that is a number, or zero.
func number(event []byte, key string) int64 {
	i := bytes.Index(event, []byte(key))
	if i < 0 {
		return 0
	}
	digits := event[i+len(key):]
	end := 0
	for end < len(digits) && '0' <= digits[end] && digits[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(string(digits[:end]), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
