package schemagen

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// services plans a service per namespace, and a second one for its internal methods.
func (p *planner) services() {
	byName := map[string]*Service{}
	for _, name := range p.m.morder {
		x := p.m.methods[name]
		s := serviceOf(x)
		if old, ok := byName[s.Name]; ok {
			s = old
		} else {
			byName[s.Name] = s
			p.plan.Services = append(p.plan.Services, s)
		}
		s.RPCs = append(s.RPCs, p.rpc(s, x))
	}
	slices.SortFunc(p.plan.Services, func(a, b *Service) int { return cmp.Compare(a.Name, b.Name) })
	for _, s := range p.plan.Services {
		slices.SortFunc(s.RPCs, func(a, b *RPC) int { return cmp.Compare(a.Name, b.Name) })
	}
}

// serviceOf names the service and the file of a method.
func serviceOf(x *Method) *Service {
	segs := strings.Split(x.Name, ".")
	segs = segs[:len(segs)-1]
	ns := strings.Join(segs, ".")
	s := &Service{Namespace: ns, Root: x.Root, Internal: x.Internal}
	switch {
	case x.Root == RootCallback:
		segs = append([]string{"callback"}, segs...)
	case len(segs) == 0:
		segs = []string{"server"}
	}
	var name strings.Builder
	for _, seg := range segs {
		name.WriteString(pascal(seg))
	}
	s.Name = name.String() + "Service"
	if x.Internal {
		s.Name = "Internal" + s.Name
	}
	s.File = snake(strings.Join(segs, "_"))
	return s
}

func (p *planner) rpc(s *Service, x *Method) *RPC {
	last := x.Name[strings.LastIndexByte(x.Name, '.')+1:]
	r := &RPC{Name: p.rpcOf(x.Name, last), Method: x}
	r.Request = p.request(s.Name+r.Name+"Request", x)
	r.Response = p.response(s.Name+r.Name+"Response", x)
	for _, m := range []*Message{r.Request, r.Response} {
		m.TopLevel, m.Method, m.Life, m.Internal = true, x, x.Life, x.Internal
	}
	return r
}

func (p *planner) request(name string, x *Method) *Message {
	path := x.Name + "?"
	t := x.Params
	if def := p.substituted("params", paramsOverrides, x.Name, ""); def != "" {
		t = &Type{Kind: KindRef, Ref: def}
	}
	if t == nil {
		t = &Type{Kind: KindObject, Absent: true}
	}
	r, def := p.m.resolve(t)
	if r.Kind == KindNull {
		r = &Type{Kind: KindObject, Absent: true}
	}
	msg := p.top(name, path, r, def)
	msg.ParamsOptional = r.Absent || r.Nullable
	return msg
}

func (p *planner) response(name string, x *Method) *Message {
	r, def := p.m.resolve(x.Result)
	return p.top(name, x.Name+"!", r, def)
}

// top plans the message of an rpc: objects and unions are flattened into it, all else gets the shape that holds it. A
// definition keeps its path, so that the documentation of its members applies here too.
func (p *planner) top(name, path string, t *Type, def string) *Message {
	from := path
	switch {
	case def != "":
		from = def
	case t.Origin != "":
		from = t.Origin
	}
	scalarUnion := false
	if t.Kind == KindUnion {
		_, scalarUnion = p.simpleUnion(name+"Value", path, t, def)
	}
	switch {
	case (t.Kind == KindObject || t.Kind == KindEnvelope) && !t.Nullable && !(t.Absent && strings.HasSuffix(path, "!")):
		return p.message(name, from, t)
	case t.Kind == KindUnion && !t.Nullable && !scalarUnion:
		return p.message(name, from, t)
	}
	msg := p.add(&Message{Name: name, Path: from, Shape: ShapeNull})
	if t.Kind == KindNull {
		return msg
	}
	f := &Field{Name: "value", Source: t, Nullable: t.Nullable || t.Absent, Life: p.m.ever()}
	msg.Shape = ShapeValue
	switch {
	case isOpaque(p.m, t):
		f.Type, f.Raw = "string", true
	case t.Kind == KindList || t.Kind == KindMap:
		msg.Shape = ShapeList
		f.Name, f.Repeated = "items", true
		if t.Kind == KindMap {
			msg.Shape, f.Name, f.Repeated, f.Map = ShapeMap, "entries", false, true
		}
		elem, edef := p.m.resolve(t.Elem)
		f.Type = p.single(name+"Item", path+"[]", elem, edef)
		f.Nullable = false
	default:
		f.Type = p.single(name+"Value", path, t, def)
		f.Optional = isScalar(f.Type)
	}
	msg.Fields = []*Field{f}
	return msg
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
