package schemagen

func (d *Def) clone() *Def {
	c := *d
	c.Type = d.Type.clone()
	return &c
}

func (x *Method) clone() *Method {
	c := *x
	c.Params, c.Result = x.Params.clone(), x.Result.clone()
	return &c
}

// clone copies a type and all below it, so that merging leaves its sources alone.
func (t *Type) clone() *Type {
	if t == nil {
		return nil
	}
	c := *t
	c.Elem = t.Elem.clone()
	c.Props = cloneAll(t.Props, func(p *Prop) *Prop {
		q := *p
		q.Type = p.Type.clone()
		return &q
	})
	c.Variants = cloneAll(t.Variants, (*Type).clone)
	c.Values = cloneAll(t.Values, func(v *Value) *Value {
		w := *v
		return &w
	})
	c.Cases = cloneAll(t.Cases, func(k *Case) *Case {
		l := *k
		l.Type = k.Type.clone()
		return &l
	})
	return &c
}

func cloneAll[T any](in []*T, one func(*T) *T) []*T {
	if in == nil {
		return nil
	}
	out := make([]*T, len(in))
	for i, v := range in {
		out[i] = one(v)
	}
	return out
}
