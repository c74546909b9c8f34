package apidoc

import (
	"errors"
	"io/fs"
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

// TestCommittedLinks follows every link of the committed reference, to its heading or file.
func TestCommittedLinks(t *testing.T) {
	t.Parallel()
	checkLinks(t, filepath.Join("..", "..", "..", "docs", "reference"), 300)
}

// TestBuiltLinks follows the links of the reference that make generate has built.
func TestBuiltLinks(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..", "..", "bin", "reference")
	if _, err := os.Stat(root); errors.Is(err, fs.ErrNotExist) {
		t.Skip("not built: make generate")
	}
	checkLinks(t, root, 5000)
}

// checkLinks follows the links of all pages below a directory, at least so many.
func checkLinks(t *testing.T, root string, atLeast int) {
	t.Helper()
	pages, headings := readPages(t, root)
	links := 0
	for path, text := range pages {
		for _, l := range linkForm.FindAllStringSubmatch(text, -1) {
			links++
			target := path
			if l[1] != "" {
				target = filepath.Join(filepath.Dir(path), filepath.FromSlash(l[1]))
			}
			_, err := os.Stat(target)
			if err != nil || l[2] != "" && !headings[target][l[2]] {
				t.Errorf("%s: %s leads nowhere", path, strings.TrimPrefix(l[0], "]"))
			}
		}
	}
	if links < atLeast {
		t.Errorf("only %d links in %d pages", links, len(pages))
	}
}

// readPages reads the pages below a directory, and the anchors of each.
func readPages(t *testing.T, root string) (pages map[string]string, headings map[string]map[string]bool) {
	t.Helper()
	pages, headings = map[string]string{}, map[string]map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		pages[path], headings[path] = string(data), map[string]bool{}
		for _, h := range headingForm.FindAllStringSubmatch(string(data), -1) {
			headings[path][anchor(h[1])] = true
		}
		if len(data) > 1<<20 {
			t.Errorf("%s: %d bytes, too large to display", path, len(data))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pages, headings
}
