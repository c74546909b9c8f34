package schema

import (
	"cmp"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/google/jsonschema-go/jsonschema"
)

// renameFields gives the fields that no json tag names the names that JSON would use: MaxDays becomes maxDays, and URL
// becomes url. encoding/json finds the fields by these names, because it ignores case. A type that decodes itself keeps
// its names.
func renameFields(s *jsonschema.Schema, t reflect.Type) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s == nil || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return
	}
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		renameFields(s.Items, t.Elem())
	case reflect.Map:
		renameFields(s.AdditionalProperties, t.Elem())
	case reflect.Struct:
		for _, field := range reflect.VisibleFields(t) {
			if field.Anonymous {
				continue // its fields follow
			}
			tagged, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			renameFields(s.Properties[cmp.Or(tagged, field.Name)], field.Type)
			if tagged == "" {
				renameProperty(s, field.Name, jsonName(field.Name))
			}
		}
	}
}

// renameProperty renames a property, unless another one has the name.
func renameProperty(s *jsonschema.Schema, from, to string) {
	property, exists := s.Properties[from]
	if _, taken := s.Properties[to]; taken || !exists {
		return
	}
	delete(s.Properties, from)
	s.Properties[to] = property
	for _, names := range [][]string{s.Required, s.PropertyOrder} {
		if at := slices.Index(names, from); at >= 0 {
			names[at] = to
		}
	}
}

// jsonName begins a name with lower-case letters, up to its second word.
func jsonName(name string) string {
	letters := []rune(name)
	for i, letter := range letters {
		startsWord := i > 0 && i+1 < len(letters) && unicode.IsLower(letters[i+1])
		if !unicode.IsUpper(letter) || startsWord {
			break
		}
		letters[i] = unicode.ToLower(letter)
	}
	return string(letters)
}
