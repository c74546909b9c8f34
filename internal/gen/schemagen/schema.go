package schemagen

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// schema is a JSON schema, as far as the CLI uses the language. Its texts
// (title, description) are left out on purpose: they are not ours to republish.
type schema struct {
	Ref                  string          `json:"$ref"`
	Type                 json.RawMessage `json:"type"`
	Properties           json.RawMessage `json:"properties"`
	Required             []string        `json:"required"`
	Items                *schema         `json:"items"`
	AdditionalProperties json.RawMessage `json:"additionalProperties"`
	AnyOf                []*schema       `json:"anyOf"`
	Not                  json.RawMessage `json:"not"`
	Enum                 []string        `json:"enum"`
	ExtensibleEnum       []string        `json:"x-extensible-enum"`
	Const                json.RawMessage `json:"const"`
	Format               string          `json:"format"`
	ContentEncoding      string          `json:"contentEncoding"`
	Default              json.RawMessage `json:"default"`
	Minimum              json.Number     `json:"minimum"`
	Maximum              json.Number     `json:"maximum"`
	Visibility           string          `json:"visibility"`
	Deprecated           bool            `json:"deprecated"`
	InProcess            bool            `json:"x-opaque-in-process"`
	Opaque               bool            `json:"x-opaque-json"`
}

// UnmarshalJSON accepts the two boolean schemas besides objects.
func (s *schema) UnmarshalJSON(data []byte) error {
	if string(bytes.TrimSpace(data)) == "true" {
		*s = schema{}
		return nil
	}
	type plain schema
	return json.Unmarshal(data, (*plain)(s))
}

func (s *schema) internal() bool { return s.Visibility == "internal" }

// isNever reports a schema that nothing satisfies: {"not": {}}, which stands for
// TypeScript's undefined.
func (s *schema) isNever() bool {
	return string(bytes.TrimSpace(s.Not)) == "{}" && s.Type == nil && s.Ref == ""
}

// types splits the type keyword into the types named, and whether null is one.
func (s *schema) types() (names []string, nullable bool, err error) {
	if s.Type == nil {
		return nil, false, nil
	}
	var one string
	if json.Unmarshal(s.Type, &one) == nil {
		return []string{one}, false, nil
	}
	var many []string
	if err := json.Unmarshal(s.Type, &many); err != nil {
		return nil, false, fmt.Errorf("type: %w", err)
	}
	for _, n := range many {
		if n == "null" {
			nullable = true
		} else {
			names = append(names, n)
		}
	}
	return names, nullable, nil
}

// toType reads a schema as a Type.
func (s *schema) toType() (*Type, error) {
	t, err := s.shape()
	if err != nil {
		return nil, err
	}
	t.Format, t.Min, t.Max = s.Format, s.Minimum.String(), s.Maximum.String()
	t.DefaultJSON = string(s.Default)
	t.Internal, t.Deprecated = s.internal(), s.Deprecated
	return t, nil
}

func (s *schema) shape() (*Type, error) {
	switch {
	case s.InProcess:
		return &Type{Kind: KindHandle}, nil
	case s.Const != nil:
		return &Type{Kind: KindConst, Const: string(s.Const)}, nil
	case s.Ref != "":
		return &Type{Kind: KindRef, Ref: renamed(s.Ref[strings.LastIndexByte(s.Ref, '/')+1:])}, nil
	case s.Enum != nil:
		return enumType(s.Enum, false), nil
	case s.ExtensibleEnum != nil:
		return enumType(s.ExtensibleEnum, true), nil
	}
	names, nullable, err := s.types()
	if err != nil {
		return nil, err
	}
	switch {
	case len(names) > 1:
		return nil, fmt.Errorf("several types %q", names)
	case len(names) == 1 && s.Properties == nil && s.AnyOf == nil, s.AnyOf == nil && len(names) == 1:
		t, err := s.single(names[0])
		if err == nil && nullable {
			t.Nullable = true
		}
		return t, err
	case s.Properties != nil:
		// An anyOf beside properties only says which of them are required together.
		return s.single("object")
	case s.AnyOf != nil:
		return s.union()
	}
	return &Type{Kind: KindAny}, nil
}

func enumType(names []string, extensible bool) *Type {
	t := &Type{Kind: KindEnum, Extensible: extensible}
	for _, n := range names {
		t.Values = append(t.Values, &Value{Name: n})
	}
	return t
}

func (s *schema) single(name string) (*Type, error) {
	switch name {
	case "null":
		return &Type{Kind: KindNull}, nil
	case "boolean":
		return &Type{Kind: KindBool}, nil
	case "integer":
		return &Type{Kind: KindInt}, nil
	case "number":
		return &Type{Kind: KindNumber}, nil
	case "string":
		switch {
		case s.Format == "date-time":
			return &Type{Kind: KindTime}, nil
		case s.ContentEncoding == "base64":
			return &Type{Kind: KindBytes}, nil
		}
		return &Type{Kind: KindString}, nil
	case "array":
		if s.Items == nil {
			return &Type{Kind: KindList, Elem: &Type{Kind: KindAny}}, nil
		}
		elem, err := s.Items.toType()
		if err != nil {
			return nil, fmt.Errorf("items: %w", err)
		}
		return &Type{Kind: KindList, Elem: elem}, nil
	case "object":
		return s.object()
	}
	return nil, fmt.Errorf("unknown type %q", name)
}

func (s *schema) object() (*Type, error) {
	var members []member
	if s.Properties != nil {
		var err error
		if members, err = decodeMembers(s.Properties); err != nil {
			return nil, fmt.Errorf("properties: %w", err)
		}
	}
	rest := strings.TrimSpace(string(s.AdditionalProperties))
	if len(members) == 0 {
		return s.dictionary(rest)
	}
	t := &Type{Kind: KindObject, Open: rest != "false"}
	for _, m := range members {
		p, err := s.property(m)
		if err != nil {
			return nil, fmt.Errorf("property %q: %w", m.name, err)
		}
		if p.Type.Kind != KindHandle {
			t.Props = append(t.Props, p)
		}
	}
	return t, nil
}

// dictionary reads an object without properties. Only a closed one is an object;
// any other is a dictionary.
func (s *schema) dictionary(rest string) (*Type, error) {
	switch rest {
	case "false":
		return &Type{Kind: KindObject}, nil
	case "", "true":
		return &Type{Kind: KindMap, Elem: &Type{Kind: KindAny}}, nil
	}
	var elem schema
	if err := json.Unmarshal(s.AdditionalProperties, &elem); err != nil {
		return nil, fmt.Errorf("additional properties: %w", err)
	}
	t, err := elem.toType()
	if err != nil {
		return nil, fmt.Errorf("additional properties: %w", err)
	}
	return &Type{Kind: KindMap, Elem: t}, nil
}

func (s *schema) property(m member) (*Prop, error) {
	var ps schema
	if err := json.Unmarshal(m.value, &ps); err != nil {
		return nil, err
	}
	t, err := ps.toType()
	if err != nil {
		return nil, err
	}
	return &Prop{
		Name: m.name, Type: t, Required: slices.Contains(s.Required, m.name) && !t.Absent,
		Internal: ps.internal(), Deprecated: ps.Deprecated,
	}, nil
}

// union reads an anyOf. Null and undefined become flags; what is left may be a
// single type.
func (s *schema) union() (*Type, error) {
	u := &Type{Kind: KindUnion}
	for i, alt := range s.AnyOf {
		if alt.isNever() {
			u.Absent = true
			continue
		}
		at, err := alt.toType()
		if err != nil {
			return nil, fmt.Errorf("alternative %d: %w", i, err)
		}
		switch at.Kind {
		case KindNull:
			u.Nullable = true
			continue
		case KindAny:
			return &Type{Kind: KindAny}, nil
		case KindHandle:
			continue
		case KindUnion:
			u.Variants = append(u.Variants, at.Variants...)
		default:
			u.Variants = append(u.Variants, at)
		}
		u.Nullable = u.Nullable || at.Nullable
		u.Absent = u.Absent || at.Absent
	}
	switch len(u.Variants) {
	case 0:
		return &Type{Kind: KindNull}, nil
	case 1:
		one := *u.Variants[0]
		one.Nullable, one.Absent = u.Nullable, u.Absent
		return &one, nil
	}
	return u, nil
}
