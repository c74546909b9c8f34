package terminal

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
)

func TestClean(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ text, want string }{
		"plain":           {"a\tb\nc", "a\tb\nc"},
		"colour":          {"\x1b[31mred", "␛[31mred"},
		"title":           {"\x1b]0;mine\x07", "␛]0;mine␇"},
		"C1":              {"\u009b2J", "<U+009B>2J"},
		"broken UTF-8":    {"a\xffb", "a\uFFFDb"},
		"raw C1":          {"a\x9b2J", "a\uFFFD2J"},
		"carriage return": {"safe\rrm -rf", "safe␍rm -rf"},
		"line ends":       {"a\r\nb", "a\nb"},
		"delete":          {"a\x7f", "a␡"},
		"override":        {"a\u202etxt", "a<U+202E>txt"},
		"isolate":         {"a\u2066b\u2069", "a<U+2066>b<U+2069>"},
		"zero width":      {"a\u200bb\ufeff", "a<U+200B>b<U+FEFF>"},
		"tag":             {"a\U000e0041", "a<U+E0041>"},
		"joiner":          {"👩\u200d💻", "👩\u200d💻"},
		"separator":       {"a\u2028b", "a<U+2028>b"},
	} {
		if got := Clean(tc.text); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	if got := CleanLine(" a\n\tb\x1b \r\n"); got != "a b␛" {
		t.Errorf("a line: %q", got)
	}
}

func TestCleanJSON(t *testing.T) {
	t.Parallel()
	const text = "{\"a\":\"x\u009b\u202e\U000e0041y\"}"
	clean := CleanJSON(text)
	if strings.IndexFunc(clean, isObeyed) >= 0 {
		t.Errorf("not clean: %q", clean)
	}
	var before, after map[string]string
	if err := json.Unmarshal([]byte(text), &before); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(clean), &after); err != nil || after["a"] != before["a"] {
		t.Errorf("%q became %q: %v", text, clean, err)
	}
}

func TestMarkdown(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		source string
		width  int
		want   []string
	}{
		"text":         {"Hello\n\nyou\nthere", 20, []string{"Hello", "", "you", "there"}},
		"wrapped":      {"one two three", 8, []string{"one two", "three"}},
		"long word":    {"abcdefghij", 4, []string{"abcd", "efgh", "ij"}},
		"wide":         {"漢字漢字", 4, []string{"漢字", "漢字"}},
		"heading":      {"## A *b*", 20, []string{"## A b"}},
		"list":         {"- a\n- b\n  1. c\n  2. d", 20, []string{"• a", "• b", "  1. c", "  2. d"}},
		"wrapped list": {"- one two three", 9, []string{"• one two", "  three"}},
		"loose list":   {"- a\n\n  b", 20, []string{"• a", "", "  b"}},
		"empty item":   {"-\n- b", 20, []string{"•", "• b"}},
		"tasks":        {"- [x] a\n- [ ] b", 20, []string{"• [x] a", "• [ ] b"}},
		"quote":        {"> a\n> b", 20, []string{"│ a", "│ b"}},
		"code":         {"`x&y` **z**", 20, []string{"`x&y` z"}},
		"block":        {"```go\nif x {\n\ty()\n}\n```", 20, []string{"  if x {", "      y()", "  }"}},
		"open block":   {"```\nabcdefgh", 6, []string{"  abcd", "  efgh"}},
		"HTML":         {"<b>a</b>\n\n<div>\nb\n</div>", 20, []string{"<b>a</b>", "", "  <div>", "  b", "  </div>"}},
		"rule":         {"---", 4, []string{"────"}},
		"table":        {"|a|b|\n|-|-|\n|c|d|", 20, []string{"┌───┬───┐", "│ a │ b │", "├───┼───┤", "│ c │ d │", "└───┴───┘"}},
		"reference":    {"a &#27;[31m &#01 &#x202e; &amp; &lrm;b", 60, []string{"a ␛[31m &#01 <U+202E> & <U+200E>b"}},
		"twice":        {"&amp;#27;", 60, []string{"&#27;"}},
		"escape":       {"\\*a\\*", 20, []string{"*a*"}},
		"link":         {"[here](https://a.example/\x1b]8;;)", 60, []string{"here (https://a.example/␛]8;;)"}},
		"address":      {"https://a.example", 60, []string{"https://a.example"}},
		"lying link":   {"[http://a](http://b)", 60, []string{"http://a (http://b)"}},
		"image":        {"![i](http://b)", 60, []string{"image i (http://b)"}},
		"strike":       {"~~a~~", 60, []string{"~~a~~"}},
		"carriage":     {"safe\rrm", 60, []string{"safe␍rm"}},
		"no width":     {"ab", 0, []string{"a", "b"}},
		"no room":      {"> - a", 1, []string{"a"}},
		"large": {"**a**\x1b" + strings.Repeat("\n", 32<<10) + "b", 10,
			append(append([]string{"**a**␛"}, make([]string, 32<<10-1)...), "b")},
		"nothing":        {"", 10, nil},
		"only a newline": {"\n", 10, nil},
	} {
		var got []string
		for _, line := range Markdown(tc.source, tc.width) {
			got = append(got, strings.TrimRight(ansi.Strip(line), " "))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// Each line ends the styles that it begins, so that lines can be shown alone.
func TestMarkdownStyles(t *testing.T) {
	t.Parallel()
	lines := Markdown("# one two three\n\n**four five six**\n\n```\nseven eight\n```", 8)
	for _, line := range lines {
		styled := escape.FindAllString(line, -1)
		if len(styled) > 0 && styled[len(styled)-1] != "\x1b[m" {
			t.Errorf("%q leaves a style", line)
		}
	}
	if len(lines) < 6 {
		t.Errorf("lines: %q", lines)
	}
}

// escape is an escape sequence of a style, or the beginning of another one.
var escape = regexp.MustCompile(`\x1b(\[[0-9;:]*m)?`)

// No text makes the renderer write an escape sequence that is not of a style, or a line that is too long.
func FuzzMarkdown(f *testing.F) {
	for _, seed := range []string{
		"# a\n- [b](http://c)", "```go\nx\x1b[2J\n```", "|a|b|\n|-|-|\n|\u202ec|d|", "&#27;]0;x&#7;", "<a href=\"x\">&#155;</a>",
		"![i](\x1b[2J)", "> 漢字漢字漢字漢字漢字", "\x1b]8;;x\x1b\\y", "0&#01",
	} {
		f.Add(seed, 20)
	}
	f.Fuzz(func(t *testing.T, source string, width int) {
		width = max(min(width, 200), 4)
		for _, line := range Markdown(source, width) {
			plain := escape.ReplaceAllStringFunc(line, func(seq string) string {
				if seq == "\x1b" {
					t.Errorf("%q: %q has an escape that is not a style", source, line)
				}
				return ""
			})
			if i := strings.IndexFunc(plain, isObeyed); i >= 0 {
				t.Errorf("%q: %q is not clean", source, plain)
			}
			if Width(line) > width {
				t.Errorf("%q: %q has %d of %d cells", source, line, Width(line), width)
			}
		}
	})
}
