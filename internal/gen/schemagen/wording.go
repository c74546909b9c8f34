package schemagen

import (
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

//go:embed words/*.txt
var wordFiles embed.FS

// wording is our own words for elements of the schemas: one element a line,
//
//	Definition -- text
//	Definition.member -- text
//	*.member -- text
//	Enum=value -- text
//	some.method -- text
//	some.method?.member -- text
//
// where lines that begin with -- go on with the text before.
type wording struct {
	texts map[string]string
	used  map[string]bool
}

func loadWording(fsys fs.FS) (*wording, error) {
	files, err := fs.Glob(fsys, "words/*.txt")
	if err != nil {
		return nil, fmt.Errorf("words: %w", err)
	}
	w := &wording{texts: map[string]string{}, used: map[string]bool{}}
	for _, f := range files {
		data, err := fs.ReadFile(fsys, f)
		if err != nil {
			return nil, fmt.Errorf("words: %w", err)
		}
		if err := w.parse(string(data)); err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
	}
	return w, nil
}

func (w *wording) parse(text string) error {
	key := ""
	for i, line := range strings.Split(text, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		k, doc, ok := strings.Cut(line, "--")
		if k, doc = strings.TrimSpace(k), strings.TrimSpace(doc); !ok || doc == "" {
			return fmt.Errorf("line %d: no text", i+1)
		}
		switch _, twice := w.texts[k]; {
		case k == "" && key == "":
			return fmt.Errorf("line %d: a text that continues nothing", i+1)
		case k == "":
			w.texts[key] += " " + doc
		case twice:
			return fmt.Errorf("line %d: %q has a text already", i+1, k)
		default:
			key = k
			w.texts[k] = doc
		}
	}
	return nil
}

// find returns the text for an element, or nothing.
func (w *wording) find(key string) string {
	text, ok := w.texts[key]
	if ok {
		w.used[key] = true
	}
	return text
}

// dead lists the texts that no element took.
func (w *wording) dead() []string {
	var out []string
	for _, k := range sortedKeys(w.texts) {
		if !w.used[k] {
			out = append(out, "words "+k)
		}
	}
	slices.Sort(out)
	return out
}
