package schemagen

import "fmt"

// Merge joins models of single versions, oldest first, into their union.
// Nothing is lost by it: what the newest version lacks stays, with the last
// version it was seen in; what is required in one and optional in another is
// optional; what became nullable is nullable; types that differ otherwise are joined
// by the rules in join.go. Where a rule was needed is in the model's Differences.
func Merge(models []*Model) (*Model, error) {
	if len(models) == 0 {
		return nil, fmt.Errorf("merge: no schema")
	}
	g := &merger{out: newModel(), joining: map[string]bool{}}
	for i, m := range models {
		g.version = i
		g.out.Versions = append(g.out.Versions, m.Versions...)
		g.out.Sources = append(g.out.Sources, m.Sources...)
		g.add(m)
	}
	return g.out, nil
}

type merger struct {
	out     *Model
	adding  *Model
	version int
	joining map[string]bool // pairs of definitions whose members are being joined
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
	t.Life = life
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
