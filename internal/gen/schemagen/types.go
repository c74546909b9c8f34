package schemagen

import (
	"fmt"
	"slices"
	"strings"
)

// field plans the field of a member.
func (p *planner) field(msg *Message, prop *Prop) *Field {
	path := msg.Path + "." + prop.Name
	f := &Field{
		JSON: prop.Name, Name: p.memberField(msg.Name, prop.Name), Required: prop.Required,
		Internal: prop.Internal, Deprecated: prop.Deprecated, Doc: prop.Doc, Life: prop.Life,
	}
	t, def := p.m.resolve(prop.Type)
	if !t.Nullable && p.excepted("null", nullings, path) {
		c := *t
		c.Nullable = true
		t = &c
	}
	f.Source, f.Nullable = t, t.Nullable
	if t.Kind == KindList && p.excepted("presence", presences, path) || t.Presence || t.Kind == KindList && t.Nullable && prop.Required {
		p.wrapped(f, msg.Name+pascal(prop.Name), path, t)
	} else {
		p.place(f, msg.Name+pascal(prop.Name), path, t, def)
	}
	scalar := !f.Repeated && !f.Map && isScalar(f.Type)
	f.Optional = scalar && (!f.Required || f.Nullable)
	f.Secret = p.secret(path, f)
	return f
}

// wrapped gives f a message around the array t, so that absence and emptiness differ.
func (p *planner) wrapped(f *Field, inline, path string, t *Type) {
	if t.Kind != KindList {
		p.fail("%s: only an array can have presence", path)
		return
	}
	f.Type = p.wrapper(inline, path, t)
}

// place finds the proto type for t and puts it into f. inline is the name that an
// unnamed type gets; def the one it has.
func (p *planner) place(f *Field, inline, path string, t *Type, def string) {
	if isOpaque(p.m, t) {
		f.raw()
		return
	}
	if t.Kind == KindList || t.Kind == KindMap {
		f.Repeated, f.Map = t.Kind == KindList, t.Kind == KindMap
		t, def = p.m.resolve(t.Elem)
	}
	f.Type = p.single(inline, path, t, def)
}

// raw makes f hold JSON text.
func (f *Field) raw() {
	f.Type, f.Raw = "string", true
	f.Name = strings.TrimSuffix(f.Name, "_") + "_json"
}

// isOpaque reports a type about whose inside nothing is known.
func isOpaque(m *Model, t *Type) bool {
	switch t.Kind {
	case KindAny, KindNull, KindHandle:
		return true
	case KindMap, KindList:
		elem, _ := m.resolve(t.Elem)
		return isOpaque(m, elem)
	}
	return false
}

// single is the proto type of one value of t. Arrays and dictionaries get a
// message around them.
func (p *planner) single(inline, path string, t *Type, def string) string {
	switch t.Kind {
	case KindBool:
		return "bool"
	case KindInt:
		return "int64"
	case KindNumber:
		return "double"
	case KindString:
		return "string"
	case KindTime:
		return timestampType
	case KindBytes:
		return "bytes"
	case KindConst:
		if isStrings(t) {
			return p.enum(inline, path, joinValues(t, t))
		}
		return constScalar(t)
	case KindEnum:
		if def != "" {
			return p.enum(def, def, t)
		}
		return p.enum(inline, path, t)
	case KindList, KindMap:
		return p.wrapper(inline, path, t)
	case KindUnion:
		if s, ok := p.simpleUnion(inline, path, t, def); ok {
			return s
		}
	}
	if def != "" {
		return p.named(def).Name
	}
	if t.Origin != "" {
		path = t.Origin
	}
	return p.message(inline, path, t).Name
}

const timestampType = "google.protobuf.Timestamp"

func constScalar(t *Type) string {
	if t.Const == "true" || t.Const == "false" {
		return "bool"
	}
	return "double"
}

func isScalar(typ string) bool {
	return slices.Contains([]string{"string", "bool", "int64", "double", "bytes"}, typ)
}

// wrapper plans a message around an array or a dictionary.
func (p *planner) wrapper(inline, path string, t *Type) string {
	elem, edef := p.m.resolve(t.Elem)
	name, shape, field := inline+"List", ShapeList, &Field{Name: "items", Repeated: true, Source: t}
	if t.Kind == KindMap {
		name, shape, field = inline+"Map", ShapeMap, &Field{Name: "entries", Map: true, Source: t}
	}
	if t.Kind == KindList && elem.Kind == KindString {
		name, path = "StringList", ""
	}
	if old, ok := p.plan.Messages[name]; ok && old.Path == path {
		return name
	}
	msg := p.add(&Message{Name: name, Path: path, Shape: shape, Life: p.m.ever()})
	field.Life = msg.Life
	field.Type = p.single(inline+"Item", path+"[]", elem, edef)
	msg.Fields = []*Field{field}
	return name
}

// enum plans an enum, once.
func (p *planner) enum(name, path string, t *Type) string {
	if old, ok := p.plan.Enums[name]; ok {
		if old.Path != path {
			p.fail("%s and %s both become enum %s", old.Path, path, name)
		}
		return name
	}
	e := &Enum{Name: name, Path: path, Open: t.Extensible, Life: p.m.ever()}
	if d, ok := p.m.defs[name]; ok && name == path {
		e.Doc, e.Life = d.Doc, d.Life
	}
	prefix := enumPrefix(name)
	seen := map[string]bool{"UNSPECIFIED": true}
	for _, v := range t.Values {
		base := strings.ToUpper(splitWords(v.Name))
		if base == "" {
			base = "EMPTY"
		}
		n := base
		for i := 2; seen[n]; i++ {
			n = fmt.Sprintf("%s_%d", base, i)
		}
		seen[n] = true
		e.Values = append(e.Values, &EnumValue{JSON: v.Name, Name: prefix + "_" + n, Doc: v.Doc, Life: v.Life})
	}
	p.plan.Enums[name] = e
	return name
}
