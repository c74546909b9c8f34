package schema

import (
	"math"
	"reflect"
	"slices"

	"github.com/google/jsonschema-go/jsonschema"
)

// acceptor reports whether a decoded JSON value surely fits a schema. Where it reports false, only the validator knows.
type acceptor func(value any) bool

// compile makes the acceptor of a schema as [jsonschema.For] derives it: types, properties and items, without
// references. It returns nil for other schemas. The validator takes a third of the allocations of a whole tool call.
func compile(s *jsonschema.Schema) acceptor {
	if !isPlain(s) {
		return nil
	}
	types := s.Types
	if s.Type != "" {
		types = []string{s.Type}
	}
	items := acceptor(acceptAll)
	if s.Items != nil {
		items = compile(s.Items)
	}
	object, ok := compileObject(s)
	if items == nil || !ok {
		return nil
	}
	return func(value any) bool {
		if len(types) > 0 && !hasType(value, types) {
			return false
		}
		switch v := value.(type) {
		case map[string]any:
			return object.accepts(v)
		case []any:
			return !slices.ContainsFunc(v, func(item any) bool { return !items(item) })
		}
		return true
	}
}

// isPlain reports whether a schema has only keywords that compile knows.
func isPlain(s *jsonschema.Schema) bool {
	rest := *s
	rest.Title, rest.Description, rest.PropertyOrder = "", "", nil
	rest.Type, rest.Types, rest.Items = "", nil, nil
	rest.Properties, rest.Required, rest.AdditionalProperties = nil, nil, nil
	return reflect.ValueOf(rest).IsZero()
}

func acceptAll(any) bool  { return true }
func acceptNone(any) bool { return false }

// object has the rules for the properties of an object.
type object struct {
	properties map[string]acceptor
	required   []string
	additional acceptor
}

func compileObject(s *jsonschema.Schema) (object, bool) {
	o := object{properties: make(map[string]acceptor, len(s.Properties)), required: s.Required, additional: acceptAll}
	if more := s.AdditionalProperties; more != nil {
		if o.additional = compile(more); o.additional == nil && isFalse(more) {
			o.additional = acceptNone
		}
	}
	for name, property := range s.Properties {
		if o.properties[name] = compile(property); o.properties[name] == nil {
			return object{}, false
		}
	}
	return o, o.additional != nil
}

// isFalse reports whether a schema is the JSON Schema false, which no value fits.
func isFalse(s *jsonschema.Schema) bool {
	rest := *s
	rest.Not = nil
	return s.Not != nil && reflect.ValueOf(*s.Not).IsZero() && reflect.ValueOf(rest).IsZero()
}

func (o object) accepts(value map[string]any) bool {
	for _, name := range o.required {
		if _, ok := value[name]; !ok {
			return false
		}
	}
	for name, v := range value {
		accepts, ok := o.properties[name]
		if !ok {
			accepts = o.additional
		}
		if !accepts(v) {
			return false
		}
	}
	return true
}

// hasType reports whether a value has one of the types. Each integer is also a number.
func hasType(value any, types []string) bool {
	name := ""
	switch v := value.(type) {
	case nil:
		name = "null"
	case bool:
		name = "boolean"
	case string:
		name = "string"
	case []any:
		name = "array"
	case map[string]any:
		name = "object"
	case float64:
		if v == math.Trunc(v) && slices.Contains(types, "integer") {
			return true
		}
		name = "number"
	}
	return slices.Contains(types, name)
}
