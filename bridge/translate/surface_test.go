package translate_test

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/race"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/testproto"
)

// everyMessage returns the messages of the CLI ordered by name, and then the messages of testproto.
func everyMessage() []protoreflect.MessageDescriptor {
	out := cliMessages()
	slices.SortFunc(out,
		func(a, b protoreflect.MessageDescriptor) int { return cmp.Compare(a.FullName(), b.FullName()) })
	for _, name := range testproto.Names {
		out = append(out, testproto.Message(name))
	}
	return out
}

// TestEveryShape sends values of every message there and back: good ones, and
// ones with each thing wrong that can be wrong with JSON. All have to survive,
// and to be what the reference makes of them.
func TestEveryShape(t *testing.T) {
	t.Parallel()
	types, values, applied := everyMessage(), 0, map[string]int{}
	for i, md := range types {
		if i%race.Sample(16) != 0 {
			continue
		}
		g := &generator{Rand: rand.New(rand.NewPCG(4, uint64(i)))}
		for n := range 6 {
			text := g.message(md, 3)
			for range n / 2 {
				var what string
				if text, what = spoilt(g.Rand, text); what != "" {
					applied[what]++
				}
			}
			if len(text) > 1<<14 {
				continue // the reference is slow
			}
			checkBoth(t, md, []byte(text), translate.Exact)
			values++
		}
	}
	t.Logf("%d values of %d messages, spoilt by: %v", values, len(types), applied)
	if values < 5*len(types)/race.Sample(16) {
		t.Errorf("only %d values of %d messages were small enough", values, len(types))
	}
	for _, m := range mutations {
		if applied[m.name] == 0 {
			t.Errorf("nothing was spoilt by %q, only by %q", m.name, slices.Sorted(maps.Keys(applied)))
		}
	}
}

// hostile are inputs that are cheap to make and might be dear to read, as large
// as n says.
var hostile = map[string]func(n int) string{
	"brackets":        func(n int) string { return strings.Repeat("[", n) },
	"braces":          func(n int) string { return strings.Repeat(`{"a":`, n/5) },
	"number":          func(n int) string { return `{"a":` + strings.Repeat("9", n) + `}` },
	"exponent":        func(n int) string { return `{"a":1e` + strings.Repeat("9", n) + `}` },
	"unknown members": func(n int) string { return `{` + strings.Repeat(`"b":0,`, n/6) + `"a":1}` },
	"escaped names":   func(n int) string { return `{` + strings.Repeat(`"\u0062":0,`, n/11) + `"a":1}` },
	"escapes":         func(n int) string { return `{"a":"` + strings.Repeat(`\ud834\udd1e`, n/12) + `"}` },
	"lone surrogates": func(n int) string { return `{"a":"` + strings.Repeat(`\ud834`, n/6) + `"}` },
	"bad UTF-8":       func(n int) string { return `{"a":"` + strings.Repeat("\xff", n) + `"}` },
	"not closed":      func(n int) string { return `{"a":"` + strings.Repeat("a", n) },
	"nulls":           func(n int) string { return `[` + strings.Repeat("null,", n/5) + `null]` },
	"twice, deep": func(n int) string {
		levels := min(n/40, 900)
		return strings.Repeat(`{"type":"x","type":"y","data":`, levels) + `"` + strings.Repeat("x", n/4) + `"` +
			strings.Repeat("}", levels)
	},
}
