package apidoc

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	linkForm    = regexp.MustCompile(`\]\(([^()#]*)(?:#([^()]*))?\)`)
	headingForm = regexp.MustCompile(`(?m)^#+ (.*)$`)
)

// TestCommittedLinks follows every link of the reference, to its heading.
func TestCommittedLinks(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..", "docs", "reference")
	pages, headings := map[string]string{}, map[string]map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		pages[path], headings[path] = string(data), map[string]bool{}
		for _, h := range headingForm.FindAllStringSubmatch(string(data), -1) {
			headings[path][anchor(h[1])] = true
		}
		if len(data) > 1<<20 {
			t.Errorf("%s: %d bytes: nobody's viewer shows that", path, len(data))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for path, text := range pages {
		for _, l := range linkForm.FindAllStringSubmatch(text, -1) {
			links++
			target := path
			if l[1] != "" {
				target = filepath.Join(filepath.Dir(path), filepath.FromSlash(l[1]))
			}
			if pages[target] == "" || l[2] != "" && !headings[target][l[2]] {
				t.Errorf("%s: %s leads nowhere", path, strings.TrimPrefix(l[0], "]"))
			}
		}
	}
	if links < 5000 {
		t.Errorf("only %d links in %d pages", links, len(pages))
	}
}
