package schemagen

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSchemaHistoryCopiesNoText compares every sentence of the generated comments with every sentence of the schemas:
// the schemas' sentences are not ours to publish. Short ones have only one wording and do not count.
func TestSchemaHistoryCopiesNoText(t *testing.T) {
	t.Parallel()
	models := schemaModels(t)
	theirs := map[string]bool{}
	for _, p := range pinned(t) {
		for _, file := range SchemaFiles {
			data, err := os.ReadFile(filepath.Join(os.Getenv("SCHEMA_DIR"), p.Version, file))
			if err != nil {
				t.Fatal(err)
			}
			var doc any
			if err := json.Unmarshal(data, &doc); err != nil {
				t.Fatal(err)
			}
			collectTexts(doc, false, theirs)
		}
	}
	out, err := Generate(Config{Schemas: models, Ledger: NewLedger()})
	if err != nil {
		t.Fatal(err)
	}
	ours := map[string]bool{}
	for _, text := range out.Files {
		for _, c := range comments(text) {
			addSentences(c, ours)
		}
	}
	if len(theirs) < 5000 || len(ours) < 1000 {
		t.Fatalf("compared only %d sentences with %d", len(ours), len(theirs))
	}
	for s := range ours {
		if theirs[s] {
			t.Errorf("a comment repeats the schemas: %q", s)
		}
	}
}

// collectTexts gathers the sentences of all descriptions below v.
func collectTexts(v any, texts bool, into map[string]bool) {
	switch v := v.(type) {
	case string:
		if texts {
			addSentences(v, into)
		}
	case []any:
		for _, e := range v {
			collectTexts(e, false, into)
		}
	case map[string]any:
		for k, e := range v {
			collectTexts(e, texts && k != "" || k == "description" || k == "x-enumDescriptions", into)
		}
	}
}

func addSentences(text string, into map[string]bool) {
	for _, s := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(".;!?\n", r) }) {
		words := strings.Fields(strings.ToLower(s))
		if len(words) >= 5 {
			into[strings.Join(words, " ")] = true
		}
	}
}

// comments returns the comments of a .proto file, each in one piece.
func comments(text string) []string {
	var out []string
	open := false
	for _, line := range strings.Split(text, "\n") {
		c, ok := strings.CutPrefix(strings.TrimSpace(line), "// ")
		switch {
		case ok && open:
			out[len(out)-1] += " " + c
		case ok:
			out = append(out, c)
		}
		open = ok
	}
	return out
}
