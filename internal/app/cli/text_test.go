package cli

import (
	"strings"
	"testing"
)

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

// Paragraphs are wrapped again, other lines are continued with their indentation, and nothing is lost.
func TestFit(t *testing.T) {
	t.Parallel()
	const text = "Usage: x ARG\n\nPrints a text that is\nlong.\n\n  x one two three four five\n\nFLAG   MEANING\n--one  a b c d e f g --h i j k\n"
	for width, want := range map[int]string{
		0:   text,
		100: strings.Replace(text, "is\nlong", "is long", 1),
		20: "Usage: x ARG\n\nPrints a text that\nis long.\n\n  x one two three\n  four five\n\nFLAG   MEANING\n" +
			"--one  a b c d e f g\n    --h i j k\n",
	} {
		if got := fit(text, width); got != want {
			t.Errorf("%d: %q, want %q", width, got, want)
		}
	}
	if got := fit(text, 1); strings.Join(strings.Fields(got), "") != strings.Join(strings.Fields(text), "") {
		t.Errorf("something is lost: %q", got)
	}
}
