package cli

import "testing"

func TestCut(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in    string
		width int
		want  string
	}{
		{"abc", 0, "abc"}, {"abc", 3, "abc"}, {"abcd", 3, "ab…"}, {"abc", 1, "…"},
		{"日本語", 6, "日本語"}, {"日本語", 5, "日本…"}, {"日本語", 4, "日…"}, {"👩‍👩‍👧👩‍👩‍👧", 3, "👩‍👩‍👧…"},
	} {
		if got := cut(tc.in, tc.width); got != tc.want {
			t.Errorf("%q to %d: %q, want %q", tc.in, tc.width, got, tc.want)
		}
	}
}
