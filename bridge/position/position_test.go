package position

import (
	"testing"

	"pgregory.net/rapid"
)

// Hostile are texts that a lenient parser takes for 1/2.
var hostile = []string{
	"", "/", "1", "1/", "/2", "1/2x", "1/2/3", "1/2/", "1/2 ", " 1/2", "1 /2", "1/ 2", "1/2\n", "1/2\x00", "+1/2", "1/+2",
	"-1/2", "1/-2", "01/2", "1/02", "00/0", "0x1/2", "1_0/2", "1e0/2", "1.0/2", "1//2", "1\\2", "1,2", "\u0661/\u0662",
	"\uff11/2", "18446744073709551616/2", "1/18446744073709551616", "1/99999999999999999999999", "seven", "NaN/1",
}

func TestParse(t *testing.T) {
	t.Parallel()
	for _, text := range hostile {
		if p, ok := Parse(text); ok || p != (Position{}) {
			t.Errorf("%q is %v", text, p)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := Position{rapid.Uint64().Draw(t, "epoch"), rapid.Uint64().Draw(t, "seq")}
		if got, ok := Parse(p.String()); !ok || got != p {
			t.Fatalf("%q is %v", p, got)
		}
	})
}
