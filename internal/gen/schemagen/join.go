package schemagen

import (
	"fmt"
	"slices"
	"strings"
)

// join is the type that accepts what either a, the older, or b does. Any two types have
// one, by these rules, the first that fits:
//
//   - two of a kind are joined part by part: members, elements, values, alternatives;
//   - null makes the other type nullable, and any JSON takes in everything;
//   - two texts become the wider one, two numbers a number, two flags a flag;
//   - an enum or an object under another name, or without one, is the newer
//     definition if that has all of the older one; else their members and values are
//     united in a type of this place alone;
//   - all else are alternatives, each with the versions that have it.
func (g *merger) join(path string, a, b *Type) *Type {
	t := g.joinKind(path, a, b)
	c := *t
	c.Nullable = t.Nullable || a.Nullable || b.Nullable
	c.Absent = a.Absent || b.Absent
	c.Internal, c.Deprecated = b.Internal, b.Deprecated
	c.Format, c.Min, c.Max, c.DefaultJSON = b.Format, b.Min, b.Max, b.DefaultJSON
	c.Life = Life{a.Life.First, b.Life.Last}
	return &c
}

func (g *merger) joinKind(path string, a, b *Type) *Type {
	switch {
	case a.Kind == b.Kind && (a.Kind != KindRef || a.Ref == b.Ref) && (a.Kind != KindConst || a.Const == b.Const):
		return g.joinSame(path, a, b)
	case a.Kind == KindNull || a.Kind == KindHandle:
		return nullableIf(b, a.Kind == KindNull)
	case b.Kind == KindNull || b.Kind == KindHandle:
		return nullableIf(a, b.Kind == KindNull)
	}
	ra, rb := g.known(a), g.known(b)
	switch {
	case ra.Kind == KindAny || rb.Kind == KindAny:
		g.differ(path, "any JSON", a, b)
		return &Type{Kind: KindAny}
	case isText(ra) && isText(rb):
		return g.joinTexts(path, a, b)
	case isNumeric(ra) && isNumeric(rb):
		return &Type{Kind: KindNumber}
	case isFlag(ra) && isFlag(rb):
		return &Type{Kind: KindBool}
	case isNamed(ra.Kind) && ra.Kind == rb.Kind:
		return g.joinNamed(path, a, b)
	}
	return g.alternatives(path, a, b)
}

func nullableIf(t *Type, nullable bool) *Type {
	c := *t
	c.Nullable = c.Nullable || nullable
	return &c
}

// isNamed reports a kind whose definitions may change their name without becoming
// another type.
func isNamed(k Kind) bool {
	return k == KindObject || k == KindMap || k == KindList || k == KindUnion
}

// known follows references to what is known of a definition so far, in all versions.
func (g *merger) known(t *Type) *Type {
	for t.Kind == KindRef {
		t = g.definition(t.Ref).Type
	}
	return t
}

func (g *merger) definition(name string) *Def {
	if d := g.out.defs[name]; d != nil {
		return d
	}
	if d := g.adding.defs[name]; d != nil {
		return d
	}
	return &Def{Type: &Type{Kind: KindAny}} // checkRefs tells of it
}

// differ notes that a rule has decided what two types become, once for each newer one.
func (g *merger) differ(path, rule string, a, b *Type) {
	versions, old := g.out.Versions, g.out.Differences[path]
	since := fmt.Sprintf("%s since %s", describe(b), versions[g.version])
	switch {
	case old == "":
		last := min(a.Life.Last, g.version-1)
		g.out.Differences[path] = fmt.Sprintf("%s until %s, %s: %s", describe(a), versions[last], since, rule)
	case !strings.Contains(old, describe(b)+" since"):
		g.out.Differences[path] = fmt.Sprintf("%s; %s: %s", old, since, rule)
	}
}

// joinTexts is the wider of two kinds of text. An enum stays one while both are.
func (g *merger) joinTexts(path string, a, b *Type) *Type {
	ra, rb := g.known(a), g.known(b)
	if isStrings(ra) && isStrings(rb) {
		switch {
		case b.Kind == KindRef && hasValues(rb, ra):
			return b
		case a.Kind == KindRef && b.Kind != KindRef && hasValues(ra, rb):
			return a
		}
		return joinValues(ra, rb)
	}
	g.differ(path, "text", a, b)
	for _, t := range []*Type{b, a} {
		if g.known(t).Kind == KindString {
			return t
		}
	}
	return &Type{Kind: KindString}
}

// hasValues reports whether an enum has all values of another.
func hasValues(t, of *Type) bool {
	have := map[string]bool{}
	for _, v := range values(t) {
		have[v.Name] = true
	}
	return !slices.ContainsFunc(values(of), func(v *Value) bool { return !have[v.Name] })
}

func isNumeric(t *Type) bool {
	return t.Kind == KindInt || t.Kind == KindNumber || t.Kind == KindConst && !isStrings(t) && !isFlag(t)
}

func isStrings(t *Type) bool {
	return t.Kind == KindEnum || t.Kind == KindConst && t.Const[0] == '"'
}

func isFlag(t *Type) bool {
	return t.Kind == KindBool || t.Kind == KindConst && (t.Const == "true" || t.Const == "false")
}

func isText(t *Type) bool {
	return isStrings(t) || t.Kind == KindString || t.Kind == KindTime || t.Kind == KindBytes
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
		return []*Value{{Name: unquote(t.Const), Life: t.Life}}
	}
	return t.Values
}

// joinNamed joins two objects, lists, dictionaries or unions of which at least one is a
// definition. The newer definition stands for both if it lacks nothing.
func (g *merger) joinNamed(path string, a, b *Type) *Type {
	pair := pairOf(a, b)
	if g.joining[pair] {
		return g.alternatives(path, a, b)
	}
	g.joining[pair] = true
	defer delete(g.joining, pair)
	ra, rb := g.known(a), g.known(b)
	joined := *g.joinSame(path, ra, rb)
	joined.Nullable = ra.Nullable || rb.Nullable
	if b.Kind == KindRef && sameType(&joined, rb) {
		return b
	}
	g.differ(path, "members of both", a, b)
	joined.Origin = a.Origin
	if b.Kind == KindRef {
		joined.Origin = b.Ref
	}
	return &joined
}

func (g *merger) joinSame(path string, a, b *Type) *Type {
	switch a.Kind {
	case KindEnum:
		return joinValues(a, b)
	case KindList, KindMap:
		c := *b
		c.Elem = g.join(path+"[]", a.Elem, b.Elem)
		return &c
	case KindObject, KindEnvelope:
		return g.joinObject(path, a, b)
	case KindUnion:
		return g.joinVariants(path, b, a.Variants, b.Variants)
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
		c.Cases[i] = &Case{Tag: q.Tag, Type: g.join(path+"/"+q.Tag, c.Cases[i].Type, q.Type),
			Life: Life{c.Cases[i].Life.First, q.Life.Last}}
	}
	return &c
}

func findProp(props []*Prop, name string) *Prop {
	for _, p := range props {
		if p.Name == name {
			return p
		}
	}
	return nil
}

func describe(t *Type) string {
	names := [...]string{"any", "null", "bool", "int", "number", "string", "time", "bytes", "enum", "const", "object",
		"map", "list", "union", "ref", "handle", "envelope"}
	switch {
	case t.Kind == KindRef:
		return t.Ref
	case t.Origin != "":
		return t.Origin
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
		len(a.Props) == len(b.Props) && !slices.ContainsFunc(a.Props, func(p *Prop) bool {
		q := findProp(b.Props, p.Name)
		return q == nil || p.Required != q.Required || !sameType(p.Type, q.Type)
	})
}
