package copilot_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The README's code is the examples', which are compiled: each line must be there, and the
// lines must come in the examples' order.
func TestReadmeSnippets(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	examples := "\n" + read("example_test.go") + read("example_permission_test.go")
	snippets := regexp.MustCompile("(?s)```go\n(\t.*?)```").FindAllStringSubmatch(read("README.md"), -1)
	if len(snippets) < 4 {
		t.Fatalf("the README has %d snippets", len(snippets))
	}
	for _, snippet := range snippets {
		left := examples
		for line := range strings.Lines(snippet[1]) {
			var found bool
			if _, left, found = strings.Cut(left, "\n"+line); !found {
				t.Fatalf("the examples do not have, at this place, the line %q", line)
			}
			left = "\n" + left
		}
	}
}
