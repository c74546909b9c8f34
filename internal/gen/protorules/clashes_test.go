package protorules

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
)

//go:embed words.txt
var wordRows string

//go:embed exceptions.txt
var exceptionRows string

// The kinds of names.
const (
	kindRPC   = "rpc"
	kindField = "field"
	kindType  = "type"
)

// Clash is a name that a language, or its generator, uses for something else.
type Clash struct {
	Kind string // rpc, field or type
	Name string // without "copilot."
	Why  string
}

// words has, by kind and word, the languages that use it.
type words map[string]map[string][]string

// parseWords reads rows of the form "kind language: words".
func parseWords(text string) (words, error) {
	out := words{kindRPC: {}, kindField: {}, kindType: {}}
	for row := range rows(text) {
		head, list, ok := strings.Cut(row, ": ")
		kind, language, ok2 := strings.Cut(head, " ")
		if !ok || !ok2 || out[kind] == nil {
			return nil, fmt.Errorf("words: %q is not \"rpc, field or type, a language, a colon and words\"", row)
		}
		for word := range strings.FieldsSeq(list) {
			if !slices.Contains(out[kind][word], language) {
				out[kind][word] = append(out[kind][word], language)
			}
		}
	}
	return out, nil
}

// rows yields the lines of a text that are neither empty nor comments.
func rows(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			if line != "" && !strings.HasPrefix(line, "#") && !yield(line) {
				return
			}
		}
	}
}

// clashes lists the names of a file that a language uses.
func (w words) clashes(f protoreflect.FileDescriptor) []Clash {
	var out []Clash
	check := func(kind string, d protoreflect.Descriptor) {
		if used := w[kind][string(d.Name())]; used != nil {
			out = append(out, Clash{kind, short(d), "a word of " + strings.Join(used, ", ")})
		}
	}
	for i := range f.Services().Len() {
		methods := f.Services().Get(i).Methods()
		for j := range methods.Len() {
			check(kindRPC, methods.Get(j))
		}
	}
	for i := range f.Enums().Len() {
		check(kindType, f.Enums().Get(i))
	}
	for i := range f.Messages().Len() {
		m := f.Messages().Get(i)
		check(kindType, m)
		for j := range m.Fields().Len() {
			field := m.Fields().Get(j)
			check(kindField, field)
			out = append(out, accessors(field)...)
		}
	}
	return out
}

// accessors lists the siblings of a field that have the name of one of its accessors in Java: a list x has getXCount, a
// map x has getXMap, a string x has getXBytes.
func accessors(f protoreflect.FieldDescriptor) []Clash {
	var suffixes []string
	switch {
	case f.IsMap():
		suffixes = []string{"_count", "_map"}
	case f.IsList():
		suffixes = []string{"_count", "_list"}
	case f.Kind() == protoreflect.StringKind:
		suffixes = []string{"_bytes"}
	case f.Kind() == protoreflect.EnumKind:
		suffixes = []string{"_value"}
	}
	var out []Clash
	for _, suffix := range suffixes {
		if s := f.ContainingMessage().Fields().ByName(f.Name() + protoreflect.Name(suffix)); s != nil {
			out = append(out, Clash{kindField, short(s), "Java has an accessor of this name for " + string(f.Name())})
		}
	}
	return out
}

func short(d protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(d.FullName()), "copilot.")
}

// exception is a name that may stay.
type exception struct {
	kind, pattern, reason string
	used                  bool
}

// parseExceptions reads rows of the form "kind name # reason".
func parseExceptions(text string) ([]*exception, error) {
	var out []*exception
	for row := range rows(text) {
		what, reason, ok := strings.Cut(row, " # ")
		f := strings.Fields(what)
		if !ok || len(f) != 2 || strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("exceptions: %q is not \"kind name # reason\"", row)
		}
		out = append(out, &exception{kind: f[0], pattern: f[1], reason: reason})
	}
	return out, nil
}

// excused drops the clashes that an exception covers.
func excused(clashes []Clash, exceptions []*exception) []Clash {
	return slices.DeleteFunc(clashes, func(c Clash) bool {
		covered := false
		for _, e := range exceptions {
			if e.kind == c.Kind && Match(e.pattern, c.Name) {
				e.used, covered = true, true
			}
		}
		return covered
	})
}

// Names checks the names in files against the words of the languages. The error lists every clash without an exception,
// and every exception without a clash.
func Names(files map[string]protoreflect.FileDescriptor) error {
	w, err := parseWords(wordRows)
	if err != nil {
		return err
	}
	exceptions, err := parseExceptions(exceptionRows)
	if err != nil {
		return err
	}
	var found []error
	for path, f := range files {
		for _, c := range excused(w.clashes(f), exceptions) {
			found = append(found, fmt.Errorf("%s: %s %s: %s", path, c.Kind, c.Name, c.Why))
		}
	}
	for _, e := range exceptions {
		if !e.used {
			found = append(found,
				fmt.Errorf("exceptions.txt: %s %s excuses nothing: delete the row", e.kind, e.pattern))
		}
	}
	slices.SortFunc(found, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(found...)
}
