package schemagen

import (
	"fmt"
	"slices"
)

// Merge joins models of single versions, oldest first, into their union.
// Nothing is lost by it: what the newest version lacks stays, with the last
// version it was seen in; what is required in one and optional in another is
// optional; what became nullable is nullable. The second result holds the paths of
// the rows of typeChanges that were needed.
func Merge(models []*Model) (*Model, map[string]bool, error) {
	if len(models) == 0 {
		return nil, nil, fmt.Errorf("merge: no schema")
	}
	g := &merger{out: newModel(), used: map[string]bool{}}
	for i, m := range models {
		g.version = i
		g.out.Versions = append(g.out.Versions, m.Versions...)
		g.out.Sources = append(g.out.Sources, m.Sources...)
		g.add(m)
	}
	return g.out, g.used, g.err()
}

type merger struct {
	out       *Model
	adding    *Model
	version   int
	conflicts []string
	used      map[string]bool // rows of typeChanges that were needed
}

func (g *merger) add(m *Model) {
	g.adding = m
	for _, name := range m.order {
		d := m.defs[name].clone()
		d.Life = Life{g.version, g.version}
		g.born(d.Type)
		old, ok := g.out.defs[name]
		if !ok {
			g.out.addDef(d)
			continue
		}
		old.Type = g.join(name, old.Type, d.Type)
		old.Internal = d.Internal
		old.Life.Last = g.version
	}
	for _, name := range m.morder {
		x := m.methods[name].clone()
		x.Life = Life{g.version, g.version}
		g.born(x.Params)
		g.born(x.Result)
		old, ok := g.out.methods[name]
		if !ok {
			g.out.addMethod(x)
			continue
		}
		old.Params = g.joinParams(name, old.Params, x.Params)
		old.Result = g.join(name+"!", old.Result, x.Result)
		old.Internal, old.Deprecated, old.Notification = x.Internal, x.Deprecated, x.Notification
		old.Life.Last = g.version
	}
}

// born stamps everything below t with the current version.
func (g *merger) born(t *Type) {
	if t == nil {
		return
	}
	life := Life{g.version, g.version}
	for _, p := range t.Props {
		p.Life = life
		g.born(p.Type)
	}
	for _, v := range t.Values {
		v.Life = life
	}
	for _, c := range t.Cases {
		c.Life = life
		g.born(c.Type)
	}
	for _, v := range t.Variants {
		g.born(v)
	}
	g.born(t.Elem)
}

func (g *merger) joinParams(path string, a, b *Type) *Type {
	switch {
	case a == nil && b == nil:
		return nil
	case a == nil:
		return optionalParams(b)
	case b == nil:
		return optionalParams(a)
	}
	return g.join(path+"?", a, b)
}

func optionalParams(t *Type) *Type {
	c := *t
	c.Absent = true
	return &c
}

// join is the type that accepts what either a, the older, or b does.
func (g *merger) join(path string, a, b *Type) *Type {
	t := g.joinKind(path, a, b)
	c := *t
	c.Nullable = t.Nullable || a.Nullable || b.Nullable
	c.Absent = a.Absent || b.Absent
	c.Internal, c.Deprecated = b.Internal, b.Deprecated
	c.Format, c.Min, c.Max, c.DefaultJSON = b.Format, b.Min, b.Max, b.DefaultJSON
	return &c
}

func (g *merger) joinKind(path string, a, b *Type) *Type {
	if a.Kind == b.Kind {
		return g.joinSame(path, a, b)
	}
	switch {
	case a.Kind == KindNull:
		c := *b
		c.Nullable = true
		return &c
	case b.Kind == KindNull:
		c := *a
		c.Nullable = true
		return &c
	case isNumeric(a) && isNumeric(b):
		return &Type{Kind: KindNumber}
	case isStrings(a) && isStrings(b):
		return joinValues(a, b)
	case b.Kind == KindUnion && slices.ContainsFunc(b.Variants, func(v *Type) bool { return sameType(v, a) }):
		return b
	case b.Kind == KindRef && g.covers(b, a):
		return b
	}
	return g.conflict(path, a, b)
}

// covers reports whether t, a constant or an enum, got a name: whether ref names
// an enum that has all its values.
func (g *merger) covers(ref, t *Type) bool {
	d := g.adding.defs[ref.Ref]
	if !isStrings(t) || d == nil || !isStrings(d.Type) {
		return false
	}
	have := map[string]bool{}
	for _, v := range values(d.Type) {
		have[v.Name] = true
	}
	return !slices.ContainsFunc(values(t), func(v *Value) bool { return !have[v.Name] })
}

func isNumeric(t *Type) bool { return t.Kind == KindInt || t.Kind == KindNumber }

func isStrings(t *Type) bool {
	return t.Kind == KindEnum || t.Kind == KindConst && t.Const[0] == '"'
}

// joinValues unites two enums, either of which may be a constant.
func joinValues(a, b *Type) *Type {
	out := &Type{Kind: KindEnum, Extensible: a.Extensible || b.Extensible}
	at := map[string]*Value{}
	for _, v := range slices.Concat(values(a), values(b)) {
		if old, ok := at[v.Name]; ok {
			old.Life.Last = v.Life.Last
			continue
		}
		c := *v
		at[v.Name] = &c
		out.Values = append(out.Values, &c)
	}
	return out
}

func values(t *Type) []*Value {
	if t.Kind == KindConst {
		return []*Value{{Name: unquote(t.Const)}}
	}
	return t.Values
}

func (g *merger) joinSame(path string, a, b *Type) *Type {
	switch a.Kind {
	case KindRef:
		if a.Ref != b.Ref {
			return g.conflict(path, a, b)
		}
	case KindConst:
		switch {
		case a.Const == b.Const:
		case isStrings(a) && isStrings(b):
			return joinValues(a, b)
		default:
			return &Type{Kind: KindBool}
		}
	case KindEnum:
		return joinValues(a, b)
	case KindList, KindMap:
		c := *b
		c.Elem = g.join(path+"[]", a.Elem, b.Elem)
		return &c
	case KindObject, KindEnvelope:
		return g.joinObject(path, a, b)
	case KindUnion:
		return g.joinUnion(path, a, b)
	}
	return b
}

func (g *merger) joinObject(path string, a, b *Type) *Type {
	c := *b
	c.Open = a.Open || b.Open
	c.Props, c.Cases = nil, nil
	for _, p := range a.Props {
		q := findProp(b.Props, p.Name)
		if q == nil {
			old := *p
			old.Required = false
			c.Props = append(c.Props, &old)
			continue
		}
		n := *q
		n.Type = g.join(path+"."+p.Name, p.Type, q.Type)
		n.Required = p.Required && q.Required
		n.Life = Life{p.Life.First, q.Life.Last}
		c.Props = append(c.Props, &n)
	}
	for _, q := range b.Props {
		if findProp(a.Props, q.Name) == nil {
			n := *q
			n.Required = false
			c.Props = append(c.Props, &n)
		}
	}
	c.Cases = append(c.Cases, a.Cases...)
	for _, q := range b.Cases {
		i := slices.IndexFunc(c.Cases, func(p *Case) bool { return p.Tag == q.Tag })
		if i < 0 {
			c.Cases = append(c.Cases, q)
			continue
		}
		c.Cases[i] = &Case{Tag: q.Tag, Type: g.join(path+"/"+q.Tag, c.Cases[i].Type, q.Type), Life: Life{c.Cases[i].Life.First, q.Life.Last}}
	}
	return &c
}

// joinUnion keeps the alternatives of both. Two of them are the same one when
// they have the same name, or are told apart by the same constants.
func (g *merger) joinUnion(path string, a, b *Type) *Type {
	c := *b
	c.Variants = slices.Clone(a.Variants)
	for _, v := range b.Variants {
		i := slices.IndexFunc(c.Variants, func(w *Type) bool { return sameVariant(w, v) })
		if i < 0 {
			c.Variants = append(c.Variants, v)
			continue
		}
		c.Variants[i] = g.join(path+"|", c.Variants[i], v)
	}
	return &c
}

func sameVariant(a, b *Type) bool {
	if a.Kind != b.Kind {
		return false
	}
	switch a.Kind {
	case KindRef:
		return a.Ref == b.Ref
	case KindObject:
		consts := 0
		for _, p := range a.Props {
			if p.Type.Kind != KindConst {
				continue
			}
			q := findProp(b.Props, p.Name)
			if q == nil || q.Type.Kind != KindConst || q.Type.Const != p.Type.Const {
				return false
			}
			consts++
		}
		return consts > 0 || sameType(a, b)
	case KindConst:
		return a.Const == b.Const
	}
	return true
}

func findProp(props []*Prop, name string) *Prop {
	for _, p := range props {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// conflict settles a change of type for the newer one. It must be a known change.
func (g *merger) conflict(path string, a, b *Type) *Type {
	for _, row := range typeChanges {
		if row.Path == path {
			g.used[path] = true
			return b
		}
	}
	g.conflicts = append(g.conflicts, fmt.Sprintf("%s: %s became %s in %s", path, describe(a), describe(b), g.out.Versions[g.version]))
	return b
}

func (g *merger) err() error {
	if len(g.conflicts) > 0 {
		return fmt.Errorf("types changed between versions without a row in typeChanges: %q", g.conflicts)
	}
	return nil
}

func describe(t *Type) string {
	names := [...]string{"any", "null", "bool", "int", "number", "string", "time", "bytes", "enum", "const", "object", "map", "list", "union", "ref", "handle", "envelope"}
	if t.Kind == KindRef {
		return t.Ref
	}
	return names[t.Kind]
}

// sameType reports whether two types are equal in all that maps to protobuf.
func sameType(a, b *Type) bool {
	if a == nil || b == nil {
		return a == b
	}
	if a.Kind != b.Kind || a.Ref != b.Ref || a.Const != b.Const || a.Nullable != b.Nullable ||
		a.Absent != b.Absent || a.Open != b.Open || !sameType(a.Elem, b.Elem) {
		return false
	}
	return slices.EqualFunc(a.Variants, b.Variants, sameType) &&
		slices.EqualFunc(a.Values, b.Values, func(x, y *Value) bool { return x.Name == y.Name }) &&
		slices.EqualFunc(a.Props, b.Props, func(x, y *Prop) bool {
			return x.Name == y.Name && x.Required == y.Required && sameType(x.Type, y.Type)
		})
}
