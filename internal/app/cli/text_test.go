package cli

import "testing"

func TestOneLine(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": "",
		"plain, ünïcode, 日本, 👩‍👩‍👧": "plain, ünïcode, 日本, 👩‍👩‍👧",
		"a\nb\r\nc\td\re":              "a b c d e",
		"\x1b[31mred\x1b]0;t\x07":      "␛[31mred␛]0;t␇",
		"\x7f\u0085\u009b31m":          "␡<U+0085><U+009B>31m",
		"a\u202eb\u2066c\u200fd\u061c": "a<U+202E>b<U+2066>c<U+200F>d<U+061C>",
		"a\u2028b\u2029":               "a<U+2028>b<U+2029>",
		"a\xffb":                       "a\ufffdb",
	} {
		if got := oneLine(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	if got := manyLines("a\r\n\tb\x1b\rc"); got != "a\n\tb␛␍c" {
		t.Errorf("%q", got)
	}
}

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
