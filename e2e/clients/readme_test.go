package clients

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestReadmeSnippets holds the snippets of the clients' READMEs to the examples, which
// are tested: each line must be one of the example's, and they must come in its order.
func TestReadmeSnippets(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ dir, fence, example string }{
		{"python", "python", "examples/agent.py"},
	} {
		t.Run(tt.dir, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join("../../clients", tt.dir)
			snippets := regexp.MustCompile("(?s)```"+tt.fence+
				"\n(.*?)```").FindAllStringSubmatch(read(t, dir, "README.md"), -1)
			if len(snippets) == 0 {
				t.Fatalf("no snippet in %s", tt.fence)
			}
			for _, snippet := range snippets {
				left := read(t, dir, tt.example)
				for line := range strings.Lines(snippet[1]) {
					var found bool
					if _, left, found = strings.Cut("\n"+left, "\n"+line); !found {
						t.Fatalf("%s does not have, at this place, the line %q", tt.example, line)
					}
				}
			}
		})
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
