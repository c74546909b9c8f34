package translate_test

import (
	"math/rand/v2"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
)

// mutations are what can be wrong with one value, or one member, of a document.
// Each gets the text of it and returns what takes its place.
var mutations = []struct {
	name   string
	member bool // it changes a member: name, colon and value
	change func(r *rand.Rand, text string) string
}{
	{"null", false, func(*rand.Rand, string) string { return "null" }},
	{"wrong type", false, func(r *rand.Rand, _ string) string { return odd[r.IntN(len(odd))] }},
	{"unknown word", false, func(*rand.Rand, string) string { return `"no-such-word"` }}, // of an enum, a discriminator
	{"huge number", false, func(r *rand.Rand, _ string) string {
		return []string{"1e400", "-9223372036854775809", "0.1" + strings.Repeat("0", 400) + "1",
			"9e" + strings.Repeat("9", 40)}[r.IntN(4)]
	}},
	{"lone surrogate", false, func(*rand.Rand, string) string { return `"a\ud834b"` }},
	{"escapes", false, func(*rand.Rand, string) string { return `"\u0061\/\ud834\udd1e\u0000"` }},
	{"deep", false, func(_ *rand.Rand, text string) string {
		return strings.Repeat(`[{"a":`, 40) + text + strings.Repeat(`}]`, 40)
	}},
	{"empty list", false, func(*rand.Rand, string) string { return "[]" }},
	{"empty object", false, func(*rand.Rand, string) string { return "{}" }},
	{"invalid UTF-8", false, func(*rand.Rand, string) string { return "\"\xed\xa0\x80\"" }},
	{"extra member", true, func(_ *rand.Rand, text string) string { return `"anotherMember":{"x":[1,null]},` + text }},
	{"reserved member", true, func(_ *rand.Rand, text string) string { return text + `,"$absent":["x"]` }},
	{"another name", true, func(_ *rand.Rand, text string) string { return `"another` + text[1:] }},
	{"twice", true, func(_ *rand.Rand, text string) string { return text + "," + text }},
	{"twice, then null", true, func(_ *rand.Rand, text string) string {
		name, _, _ := strings.Cut(text, `":`)
		return text + "," + name + `":null`
	}},
}

// place is where a value or a member stands in a document.
type place struct {
	start, end int
	member     bool
}

// spoilt applies one mutation to one place of a well-formed document, and tells
// which; a document without such a place stays as it is, and so does one that is
// not well-formed any more.
func spoilt(r *rand.Rand, text string) (string, string) {
	m := mutations[r.IntN(len(mutations))]
	var fitting []place
	for _, p := range places(nil, text, 0) {
		if p.member == m.member {
			fitting = append(fitting, p)
		}
	}
	if len(fitting) == 0 {
		return text, ""
	}
	p := fitting[r.IntN(len(fitting))]
	return text[:p.start] + m.change(r, text[p.start:p.end]) + text[p.end:], m.name
}

// places lists the value at offset and the members, and their values, of the
// objects in it; what is in arrays is reached as part of them.
func places(out []place, text string, offset int) []place {
	out = append(out, place{start: offset, end: offset + len(text)})
	if !strings.HasPrefix(text, "{") {
		return out
	}
	from := 0
	for m, err := range translate.Members([]byte(text)) {
		if err != nil {
			break
		}
		whole := string(m.Key) + ":" + string(m.Value)
		at := strings.Index(text[from:], whole)
		if at < 0 {
			break // white space: not written by the generator
		}
		start := from + at
		from = start + len(whole)
		out = append(out, place{start: offset + start, end: offset + from, member: true})
		out = places(out, string(m.Value), offset+from-len(m.Value))
	}
	return out
}
