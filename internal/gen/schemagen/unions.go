package schemagen

import (
	"fmt"
	"slices"
	"strings"
)

// simpleUnion deals with alternatives that one scalar or enum can hold.
func (p *planner) simpleUnion(inline, path string, t *Type, def string) (string, bool) {
	strs, nums, free := 0, 0, false
	merged := &Type{Kind: KindEnum}
	for _, v := range t.Variants {
		r, _ := p.m.resolve(v)
		switch {
		case r.Kind == KindString || r.Kind == KindTime:
			strs++
			free = true
		case isStrings(r):
			strs++
			merged = joinValues(merged, r)
		case isNumeric(r):
			nums++
		}
	}
	switch n := len(t.Variants); {
	case t.Cases != nil:
		return "", false
	case strs == n && free:
		return "string", true
	case strs == n:
		if def != "" {
			return p.enum(def, def, merged), true
		}
		return p.enum(inline, path, merged), true
	case nums == n:
		return "double", true
	}
	return "", false
}

// union fills a message with one case for every alternative.
func (p *planner) union(msg *Message, t *Type) {
	msg.Shape = ShapeUnion
	p.cases(msg, t)
	if t.Cases != nil {
		return
	}
	msg.Discriminator = p.discriminator(t.Variants)
	for _, v := range t.Variants {
		p.addCase(msg, p.variant(msg, t.Variants, v))
	}
}

// cases adds the alternatives that have tags.
func (p *planner) cases(msg *Message, t *Type) {
	for _, c := range t.Cases {
		ct, def := p.m.resolve(c.Type)
		p.addCase(msg,
			&Field{Name: fieldName(c.Tag), Tag: c.Tag,
				Type: p.single(msg.Name+pascal(c.Tag), msg.Path+"/"+c.Tag, ct, def), Source: ct, Life: c.Life})
	}
}

func (p *planner) addCase(msg *Message, f *Field) {
	f.Case = true
	f.Name = freeName(msg, f.Name)
	msg.Fields = append(msg.Fields, f)
}

// variant plans the case of one alternative.
func (p *planner) variant(msg *Message, variants []*Type, v *Type) *Field {
	t, def := p.m.resolve(v)
	f := &Field{Source: t, Life: v.Life}
	switch t.Kind {
	case KindObject, KindUnion:
		p.objectVariant(f, msg, variants, t, def)
	case KindList:
		f.Type, f.Name = p.wrapper(msg.Name, msg.Path+"|list", t), "list"
	case KindMap:
		if isOpaque(p.m, t) {
			f.Name = "object"
			f.raw()
			break
		}
		f.Type, f.Name = p.wrapper(msg.Name, msg.Path+"|map", t), "map"
	case KindEnum:
		f.Type = p.single(msg.Name+"Value", msg.Path+"|enum", t, def)
		f.Name = "value"
	default:
		if isStrings(t) {
			f.Type = "string"
		} else {
			f.Type = p.single(msg.Name+"Value", msg.Path+"|value", t, def)
		}
		f.Name = f.Type + "_value"
		if f.Type == timestampType {
			f.Name = "time_value"
		}
	}
	return f
}

// objectVariant plans the case of an object: named by what selects it, if that is
// one value, else by its type.
func (p *planner) objectVariant(f *Field, msg *Message, variants []*Type, t *Type, def string) {
	var tags []string
	if msg.Discriminator != "" {
		tags, _ = p.tags(t, msg.Discriminator)
		f.Tag = strings.Join(tags, ",")
	}
	hint := strings.Join(tags, " ")
	switch {
	case def != "":
		f.Type = p.named(def).Name
		if len(tags) != 1 {
			hint = p.variantSuffix(msg, variants, def)
		}
	default:
		if hint == "" {
			hint = "object"
		}
		f.Type = p.message(p.freeMessage(msg.Name+pascal(hint)), msg.Path+"|"+hint, t).Name
	}
	f.Name = fieldName(hint)
}

// freeMessage avoids a name that another alternative has already.
func (p *planner) freeMessage(name string) string {
	try := name
	for i := 2; p.plan.Messages[try] != nil; i++ {
		try = fmt.Sprintf("%s%d", name, i)
	}
	return try
}

// variantSuffix names a case by the words that its type's name adds to the common beginning of all the types' names;
// for a single type, to the union's name.
func (p *planner) variantSuffix(msg *Message, variants []*Type, def string) string {
	words := strings.Split(splitWords(def), "_")
	common := len(words)
	others := 0
	for _, v := range variants {
		if _, name := p.m.resolve(v); name != "" && name != def {
			common = min(common, commonPrefix(words, strings.Split(splitWords(name), "_")))
			others++
		}
	}
	if others == 0 {
		common = commonPrefix(words, strings.Split(splitWords(msg.Name), "_"))
	}
	if common == len(words) {
		return def
	}
	return strings.Join(words[common:], "_")
}

func commonPrefix(a, b []string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// discriminator finds the member that tells the objects among the alternatives
// apart: required in all, with constants of which none occurs twice.
func (p *planner) discriminator(variants []*Type) string {
	var objects []*Type
	for _, v := range variants {
		if t, _ := p.m.resolve(v); t.Kind == KindObject || t.Kind == KindUnion {
			objects = append(objects, t)
		}
	}
	if len(objects) < 2 {
		return ""
	}
	for _, name := range p.candidates(objects[0]) {
		seen := map[string]bool{}
		ok := true
		for _, o := range objects {
			tags, found := p.tags(o, name)
			ok = ok && found
			for _, tag := range tags {
				ok = ok && !seen[tag]
				seen[tag] = true
			}
		}
		if ok {
			return name
		}
	}
	return ""
}

func (p *planner) candidates(t *Type) []string {
	names := []string{"kind", "type"}
	for t.Kind == KindUnion {
		t, _ = p.m.resolve(t.Variants[0])
	}
	for _, prop := range t.Props {
		if !slices.Contains(names, prop.Name) {
			names = append(names, prop.Name)
		}
	}
	return names
}

// tags are the values that the member name can have in t, if they are few and known.
func (p *planner) tags(t *Type, name string) ([]string, bool) {
	if t.Kind == KindUnion {
		var all []string
		for _, v := range t.Variants {
			vt, _ := p.m.resolve(v)
			tags, ok := p.tags(vt, name)
			if !ok {
				return nil, false
			}
			all = append(all, tags...)
		}
		return all, true
	}
	prop := findProp(t.Props, name)
	if prop == nil || !prop.Required {
		return nil, false
	}
	pt, _ := p.m.resolve(prop.Type)
	switch pt.Kind {
	case KindConst:
		return []string{unquote(pt.Const)}, true
	case KindEnum:
		var out []string
		for _, v := range pt.Values {
			out = append(out, v.Name)
		}
		return out, true
	}
	return nil, false
}

// envelope fills a message whose payload's type is named by another member.
func (p *planner) envelope(msg *Message, t *Type) {
	msg.Shape, msg.Discriminator, msg.DataMember = ShapeEnvelope, t.Discriminator, t.DataMember
	p.members(msg, t.Props)
	p.cases(msg, t)
}
