package schemagen

import "slices"

// alternatives is a union of two types that nothing else joins. If one of them is a
// union that takes in the other already, it is the result.
func (g *merger) alternatives(path string, a, b *Type) *Type {
	ra, rb := g.known(a), g.known(b)
	switch {
	case rb.Kind == KindUnion && g.takes(rb, a):
		return b
	case ra.Kind == KindUnion && g.takes(ra, b):
		return a
	}
	g.differ(path, "alternatives", a, b)
	return g.joinVariants(path, &Type{Kind: KindUnion}, variantsOf(a, ra), variantsOf(b, rb))
}

// variantsOf is the alternatives of a union, and of any other type the type itself.
func variantsOf(t, known *Type) []*Type {
	if known.Kind == KindUnion {
		return known.Variants
	}
	return []*Type{t}
}

// takes reports whether one alternative of a union is t, or objects that a constant
// tells apart take all that t, an object, can be.
func (g *merger) takes(u, t *Type) bool {
	if slices.ContainsFunc(u.Variants, func(v *Type) bool { return sameType(v, t) }) {
		return true
	}
	o := g.known(t)
	if o.Kind != KindObject {
		return false
	}
	for _, p := range o.Props {
		have := map[string]bool{}
		for _, v := range u.Variants {
			if c, ok := g.takesWhere(v, o, p.Name); ok {
				have[c] = true
			}
		}
		want := g.known(p.Type)
		switch {
		case len(have) == 0:
		case want.Kind == KindBool && have["true"] && have["false"]:
			return true
		case want.Kind == KindConst && have[want.Const]:
			return true
		case want.Kind == KindEnum &&
			!slices.ContainsFunc(want.Values, func(v *Value) bool { return !have[quote(v.Name)] }):
			return true
		}
	}
	return false
}

// takesWhere is the value of the constant name of the alternative v, if v takes in the
// object o where o's member has that value.
func (g *merger) takesWhere(v, o *Type, name string) (string, bool) {
	v = g.known(v)
	if v.Kind != KindObject {
		return "", false
	}
	tag := findProp(v.Props, name)
	if tag == nil || !tag.Required || tag.Type.Kind != KindConst {
		return "", false
	}
	for _, p := range v.Props {
		if q := findProp(o.Props, p.Name); p.Required && (q == nil || !q.Required) {
			return "", false
		}
	}
	for _, q := range o.Props {
		p := findProp(v.Props, q.Name)
		if p == nil || q.Name != name && !sameType(p.Type, q.Type) {
			return "", false
		}
	}
	return tag.Type.Const, true
}

// joinVariants merges the alternatives of two unions, in a copy of u. Two of them are the same one when they have the
// same name or the same constants distinguish them; the rest when they look alike.
func (g *merger) joinVariants(path string, u *Type, a, b []*Type) *Type {
	c := *u
	c.Variants = slices.Clone(a)
	partner := make([]int, len(b))
	taken := map[int]bool{}
	for _, same := range []func(a, b *Type) bool{sameVariant, g.alike} {
		for i, v := range b {
			if partner[i] > 0 {
				continue
			}
			for j, w := range a {
				if !taken[j] && same(w, v) {
					partner[i], taken[j] = j+1, true
					break
				}
			}
		}
	}
	for i, v := range b {
		if j := partner[i] - 1; j >= 0 {
			c.Variants[j] = g.join(path+"|", c.Variants[j], v)
		} else {
			c.Variants = append(c.Variants, v)
		}
	}
	return &c
}

// sameVariant reports whether two alternatives are certainly the same one.
func sameVariant(a, b *Type) bool {
	if a.Kind != b.Kind {
		return false
	}
	switch a.Kind {
	case KindRef:
		return a.Ref == b.Ref
	case KindObject:
		return sameConstants(a, b) || sameType(a, b)
	case KindConst:
		return a.Const == b.Const
	}
	return true
}

// alike reports whether two alternatives are so much alike that one was made of the
// other: it has another name, more values, or more members.
func (g *merger) alike(a, b *Type) bool {
	ra, rb := g.known(a), g.known(b)
	switch {
	case g.joining[pairOf(a, b)] || isConst(ra, rb):
		return false
	case isText(ra) && isText(rb), isNumeric(ra) && isNumeric(rb), isFlag(ra) && isFlag(rb):
		return true
	case ra.Kind != rb.Kind:
		return false
	case ra.Kind == KindObject:
		return sameConstants(ra, rb) || a.Kind == b.Kind && a.Kind == KindObject && !hasConstants(a) && !hasConstants(b)
	}
	return ra.Kind == KindList || ra.Kind == KindMap
}

func pairOf(a, b *Type) string { return describe(a) + "+" + describe(b) }

func isConst(types ...*Type) bool {
	return !slices.ContainsFunc(types, func(t *Type) bool { return t.Kind != KindConst })
}

// sameConstants reports whether two objects have the same members with one value only,
// and at least one.
func sameConstants(a, b *Type) bool {
	for _, p := range a.Props {
		if p.Type.Kind != KindConst {
			continue
		}
		q := findProp(b.Props, p.Name)
		if q == nil || q.Type.Kind != KindConst || q.Type.Const != p.Type.Const {
			return false
		}
	}
	return hasConstants(a)
}

func hasConstants(t *Type) bool {
	return slices.ContainsFunc(t.Props, func(p *Prop) bool { return p.Type.Kind == KindConst })
}
