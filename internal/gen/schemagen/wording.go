package schemagen

import (
	"embed"
	"fmt"
	"io/fs"
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
	w := &wording{texts: map[string]string{}, used: map[string]bool{}}
	return w, eachText(fsys, "words/*.txt", func(_, text string) error { return w.parse(text) })
}

// eachText calls read for the name and the text of each file that matches a pattern.
func eachText(fsys fs.FS, pattern string, read func(file, text string) error) error {
	files, err := fs.Glob(fsys, pattern)
	if err != nil {
		return fmt.Errorf("%s: %w", pattern, err)
	}
	for _, file := range files {
		data, err := fs.ReadFile(fsys, file)
		if err == nil {
			err = read(file, string(data))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
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
	return out
}
