package inbox

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// A page token is the place of a callback, and places have one order.
func TestCursors(t *testing.T) {
	t.Parallel()
	cursors := rapid.Custom(func(t *rapid.T) cursor {
		return cursor{
			Created: rapid.Int64Range(0, 2).Draw(t, "created"), Tenant: rapid.SampledFrom([]string{"", "a"}).Draw(t, "tenant"),
			Session: rapid.SampledFrom([]string{"s", "t"}).Draw(t, "session"), Callback: rapid.StringN(1, 2, -1).Draw(t, "callback"),
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		list := rapid.SliceOfDistinct(cursors, func(c cursor) cursor { return c }).Draw(t, "cursors")
		slices.SortFunc(list, cursor.compare)
		for i, c := range list {
			if back, err := parseToken(c.token()); err != nil || back != c {
				t.Fatalf("the token of %v is %v, %v", c, back, err)
			}
			if i > 0 && list[i-1].compare(c) >= 0 {
				t.Fatalf("%v is not before %v", list[i-1], c)
			}
		}
	})
	if c, err := parseToken(""); err != nil || c != (cursor{}) {
		t.Errorf("without a token: %v, %v", c, err)
	}
	good := cursor{Created: 1, Session: "s", Callback: "c"}.token()
	for _, token := range []string{
		"?", "bm8", // no base64, and no JSON
		good + "x", good + "\n", "\r" + good, good + "=", good + good, " " + good, "bnVsbA", "e30", // null and {}
	} {
		if _, err := parseToken(token); fault.ReasonOf(err) != fault.InvalidField {
			t.Errorf("%q: %v", token, err)
		}
	}
}
