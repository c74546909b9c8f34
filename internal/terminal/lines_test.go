package terminal

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
)

// linesOf are the lines of an input and its errors.
func linesOf(t *testing.T, in io.Reader) (lines []Line) {
	t.Helper()
	for line := range Lines(t.Context(), in) {
		lines = append(lines, line)
	}
	return lines
}

func TestLines(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("a", MaxLine)
	gone := errors.New("gone")
	for name, tc := range map[string]struct {
		in   io.Reader
		want []Line
	}{
		"nothing":         {strings.NewReader(""), nil},
		"lines":           {strings.NewReader("one\ntwo\r\n\nthree\n"), []Line{{"one", nil}, {"two", nil}, {"", nil}, {"three", nil}}},
		"no last end":     {strings.NewReader("one\ntwo"), []Line{{"one", nil}, {"two", nil}}},
		"byte by byte":    {iotest.OneByteReader(strings.NewReader("one\ntwo")), []Line{{"one", nil}, {"two", nil}}},
		"over 64 KiB":     {strings.NewReader(longest[:70_000] + "\nb\n"), []Line{{longest[:70_000], nil}, {"b", nil}}},
		"longest":         {strings.NewReader(longest + "\r\nb\n"), []Line{{longest, nil}, {"b", nil}}},
		"longest, no end": {strings.NewReader(longest), []Line{{longest, nil}}},
		"too long":        {strings.NewReader("a\n" + longest + "a\nb\n"), []Line{{"a", nil}, {"", ErrLineTooLong}, {"b", nil}}},
		"much too long":   {strings.NewReader(longest + longest + "\nb"), []Line{{"", ErrLineTooLong}, {"b", nil}}},
		"too long at end": {strings.NewReader(longest + "aaa"), []Line{{"", ErrLineTooLong}}},
		"failed":          {io.MultiReader(strings.NewReader("one\ntwo"), iotest.ErrReader(gone)), []Line{{"one", nil}, {"two", nil}, {"", gone}}},
	} {
		if got := linesOf(t, tc.in); !slices.Equal(got, tc.want) {
			t.Errorf("%s: %s, want %s", name, short(got), short(tc.want))
		}
	}
}

// short cuts long lines for a message.
func short(lines []Line) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.Text[:min(len(l.Text), 20)])
		if l.Err != nil {
			b.WriteString("<" + l.Err.Error() + ">")
		}
		b.WriteString("|")
	}
	return b.String()
}

// The goroutine does not outlive its context when nobody takes its lines.
func TestLinesEndWithTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		lines := Lines(ctx, strings.NewReader("one\ntwo\n"))
		if got := <-lines; got.Text != "one" {
			t.Errorf("line %q", got.Text)
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		if line, ok := <-lines; ok {
			t.Errorf("after the end: %q", line.Text)
		}
	})
}
