package fields

import (
	"strings"
	"unicode"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// OfPath returns the field that a path of a field mask names; nil if there is none. In JSON the paths have the fields'
// JSON names, from which the decoder makes protobuf's usual names: gitHubToken becomes git_hub_token, although the field
// is github_token. OfPath takes both.
func OfPath(m protoreflect.MessageDescriptor, path string) protoreflect.FieldDescriptor {
	if field := m.Fields().ByName(protoreflect.Name(path)); field != nil {
		return field
	}
	for i := range m.Fields().Len() {
		if field := m.Fields().Get(i); snake(field.JSONName()) == path {
			return field
		}
	}
	return nil
}

// snake is the path that the decoder of JSON makes of a name in camel case.
func snake(name string) string {
	var b strings.Builder
	for _, r := range name {
		if unicode.IsUpper(r) {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}
