package schemagen

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

//go:embed overlay/*.txt
var overlayFiles embed.FS

// overlay is what the files in overlay/ say; its language is described there.
type overlay struct {
	model   *Model
	extends []*Def
	events  []*overlayEvent
	// included are the definitions whose members others have.
	included map[string]bool
}

type overlayEvent struct {
	tag, data string
}

// loadOverlay parses all overlay files.
func loadOverlay(fsys fs.FS) (*overlay, error) {
	o := &overlay{model: newModel(), included: map[string]bool{}}
	p := &overlayParser{out: o}
	err := eachText(fsys, "overlay/*.txt", func(file, text string) error {
		p.file = strings.TrimSuffix(path.Base(file), ".txt")
		return p.parse(text)
	})
	if err != nil {
		return nil, err
	}
	return o, p.resolveIncludes()
}

// overlayParser reads one line at a time; cur is what indented lines belong to.
type overlayParser struct {
	out      *overlay
	file     string // name of the file, without its ending
	cur      *Def
	doc      *string // where a continued comment goes
	includes map[*Type][]include
}

// include stands for the members of another object, at a place among the members.
type include struct {
	at   int
	name string
}

var (
	overlayHead   = regexp.MustCompile(`^(object|fragment|enum|union) (\w+)$|^(extend) (\w+(?:\.\w+)*)$`)
	overlayEnv    = regexp.MustCompile(`^envelope (\w+) by (\w+) in (\w+)$`)
	overlayMethod = regexp.MustCompile(`^(request|callback|notify) ([\w.]+)\((\w*)\)(?: -> (\w+))?$`)
	overlayEvt    = regexp.MustCompile(`^event ([\w.]+): (\w+)$`)
	overlayProp   = regexp.MustCompile(`^(\w+)(\??): (.+)$`)
	overlayCase   = regexp.MustCompile(`^(?:case )?([\w.-]+): (\w+)$`)
)

func (p *overlayParser) parse(text string) error {
	for i, line := range strings.Split(text, "\n") {
		if strings.TrimSpace(line) == "" {
			continue
		}
		body, doc, _ := strings.Cut(line, "--")
		doc = strings.TrimSpace(doc)
		indented := strings.HasPrefix(line, " ")
		body = strings.TrimSpace(body)
		var err error
		switch {
		case body == "":
			if p.doc == nil {
				err = fmt.Errorf("a comment that continues nothing")
			} else {
				*p.doc += " " + doc
			}
		case indented:
			err = p.inner(body, doc)
		default:
			err = p.outer(body, doc)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return nil
}

func (p *overlayParser) outer(body, doc string) error {
	p.cur = nil
	if m := overlayHead.FindStringSubmatch(body); m != nil {
		head, name := m[1]+m[3], m[2]+m[4]
		kinds := map[string]Kind{"object": KindObject, "fragment": KindObject, "extend": KindObject, "enum": KindEnum,
			"union": KindUnion}
		p.cur = &Def{Name: name, Doc: doc, Overlay: true, Home: p.file, Fragment: head == "fragment",
			Type: &Type{Kind: kinds[head]}}
		p.doc = &p.cur.Doc
		if head == "extend" {
			p.out.extends = append(p.out.extends, p.cur)
			return nil
		}
		return p.define()
	}
	if m := overlayEnv.FindStringSubmatch(body); m != nil {
		p.cur = &Def{Name: m[1], Doc: doc, Overlay: true, Home: p.file,
			Type: &Type{Kind: KindEnvelope, Discriminator: m[2], DataMember: m[3]}}
		p.doc = &p.cur.Doc
		return p.define()
	}
	if m := overlayEvt.FindStringSubmatch(body); m != nil {
		p.out.events = append(p.out.events, &overlayEvent{m[1], m[2]})
		return nil
	}
	if m := overlayMethod.FindStringSubmatch(body); m != nil {
		return p.method(m[1], m[2], m[3], m[4], doc)
	}
	return fmt.Errorf("cannot read %q", body)
}

func (p *overlayParser) define() error {
	if _, ok := p.out.model.defs[p.cur.Name]; ok {
		return fmt.Errorf("%q is defined twice", p.cur.Name)
	}
	p.out.model.addDef(p.cur)
	return nil
}

func (p *overlayParser) method(kind, name, params, result, doc string) error {
	if _, ok := p.out.model.methods[name]; ok {
		return fmt.Errorf("method %q is described twice", name)
	}
	x := &Method{Name: name, Root: RootServer, Overlay: true, Doc: doc, Notification: kind == "notify",
		Result: &Type{Kind: KindNull}}
	switch {
	case kind != "request":
		x.Root = RootCallback
	case strings.HasPrefix(name, "session."):
		x.Root = RootSession
	}
	if params != "" {
		x.Params = &Type{Kind: KindRef, Ref: params}
	}
	if result != "" {
		x.Result = &Type{Kind: KindRef, Ref: result}
	}
	p.out.model.addMethod(x)
	p.doc = &x.Doc
	return nil
}

func (p *overlayParser) inner(body, doc string) error {
	if p.cur == nil {
		return fmt.Errorf("%q belongs to nothing", body)
	}
	t := p.cur.Type
	switch {
	case t.Kind == KindEnum:
		v := &Value{Name: body, Doc: doc}
		t.Values = append(t.Values, v)
		p.doc = &v.Doc
		return nil
	case t.Kind == KindUnion, strings.HasPrefix(body, "case "):
		m := overlayCase.FindStringSubmatch(body)
		if m == nil {
			return fmt.Errorf("cannot read case %q", body)
		}
		t.Cases = append(t.Cases, &Case{Tag: m[1], Type: &Type{Kind: KindRef, Ref: m[2]}})
		return nil
	case strings.HasPrefix(body, "include "):
		if p.includes == nil {
			p.includes = map[*Type][]include{}
		}
		p.includes[t] = append(p.includes[t], include{len(t.Props), strings.TrimPrefix(body, "include ")})
		return nil
	}
	m := overlayProp.FindStringSubmatch(body)
	if m == nil {
		return fmt.Errorf("cannot read member %q", body)
	}
	pt, err := parseOverlayType(m[3])
	if err != nil {
		return fmt.Errorf("member %q: %w", m[1], err)
	}
	prop := &Prop{Name: m[1], Type: pt, Required: m[2] == "", Doc: doc}
	t.Props = append(t.Props, prop)
	p.doc = &prop.Doc
	return nil
}

// resolveIncludes puts the members of included objects in their places.
func (p *overlayParser) resolveIncludes() error {
	for _, name := range p.out.model.order {
		t := p.out.model.defs[name].Type
		list := p.includes[t]
		delete(p.includes, t)
		shift := 0
		for _, inc := range list {
			from, ok := p.out.model.defs[inc.name]
			if !ok || len(p.includes[from.Type]) > 0 {
				return fmt.Errorf("overlay: %q includes %q, which is not complete before it", name, inc.name)
			}
			p.out.included[inc.name] = true
			var copies []*Prop
			for _, prop := range from.Type.Props {
				c := *prop
				copies = append(copies, &c)
			}
			t.Props = slices.Insert(t.Props, inc.at+shift, copies...)
			shift += len(copies)
		}
	}
	return nil
}

var overlayScalars = map[string]Kind{
	"string": KindString, "bool": KindBool, "int": KindInt, "number": KindNumber,
	"time": KindTime, "base64": KindBytes, "json": KindAny, "null": KindNull,
}

func parseOverlayType(s string) (*Type, error) {
	if rest, ok := strings.CutSuffix(s, "|null"); ok {
		t, err := parseOverlayType(rest)
		if err == nil {
			t.Nullable = true
		}
		return t, err
	}
	switch {
	case strings.HasPrefix(s, `"`):
		return enumType(strings.Split(strings.ReplaceAll(s, `"`, ""), "|"), false), nil
	case strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]!"):
		t, err := parseOverlayType(strings.TrimSuffix(s, "!"))
		if err == nil {
			t.Presence = true
		}
		return t, err
	case strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]"):
		elem, err := parseOverlayType(s[1 : len(s)-1])
		return &Type{Kind: KindList, Elem: elem}, err
	case strings.HasPrefix(s, "{") && strings.HasSuffix(s, "}"):
		elem, err := parseOverlayType(s[1 : len(s)-1])
		return &Type{Kind: KindMap, Elem: elem}, err
	}
	if k, ok := overlayScalars[s]; ok {
		return &Type{Kind: k}, nil
	}
	if !regexp.MustCompile(`^\w+$`).MatchString(s) {
		return nil, fmt.Errorf("cannot read type %q", s)
	}
	return &Type{Kind: KindRef, Ref: s}, nil
}

// applyOverlay adds the overlay to a merged model.
func (m *Model) applyOverlay(o *overlay) error {
	for _, name := range o.model.order {
		if o.model.defs[name].Fragment {
			continue
		}
		if _, ok := m.defs[name]; ok {
			return fmt.Errorf("overlay: %q is defined by the schemas too", name)
		}
		m.addDef(o.model.defs[name])
		m.always(o.model.defs[name])
	}
	for _, name := range o.model.morder {
		if _, ok := m.methods[name]; ok {
			return fmt.Errorf("overlay: method %q is in the schemas too", name)
		}
		x := o.model.methods[name]
		x.Life = m.ever()
		m.addMethod(x)
	}
	for _, ext := range o.extends {
		if err := m.extend(ext); err != nil {
			return err
		}
	}
	env := m.defs[eventUnion].Type
	for _, e := range o.events {
		if slices.ContainsFunc(env.Cases, func(c *Case) bool { return c.Tag == e.tag }) {
			return fmt.Errorf("overlay: event %q is in the schemas too", e.tag)
		}
		env.Cases = append(env.Cases,
			&Case{Tag: e.tag, Type: &Type{Kind: KindRef, Ref: e.data}, Life: m.ever()})
	}
	return m.checkRefs()
}

// always marks a definition and what is in it as belonging to every version.
func (m *Model) always(d *Def) {
	life := m.ever()
	d.Life = life
	for _, p := range d.Type.Props {
		p.Life = life
		for _, v := range p.Type.Values {
			v.Life = life
		}
	}
	for _, v := range d.Type.Values {
		v.Life = life
	}
	for _, c := range d.Type.Cases {
		c.Life = life
	}
}

// extend adds members seen on the wire to a definition of the schemas, or to an object
// that has no name but is a member of one.
func (m *Model) extend(ext *Def) error {
	name, path, _ := strings.Cut(ext.Name, ".")
	var t *Type
	if d := m.defs[name]; d != nil {
		t = d.Type
	}
	for _, member := range strings.FieldsFunc(path, func(r rune) bool { return r == '.' }) {
		p := (*Prop)(nil)
		if t != nil {
			p = findProp(t.Props, member)
		}
		if t = nil; p != nil {
			t = p.Type
		}
	}
	if t == nil || t.Kind != KindObject {
		return fmt.Errorf("overlay: there is no object %q to extend", ext.Name)
	}
	m.always(ext)
	for _, p := range ext.Type.Props {
		if findProp(t.Props, p.Name) != nil {
			return fmt.Errorf("overlay: %q declares %q itself", ext.Name, p.Name)
		}
	}
	m.walk(func(_ string, u *Type) {
		if u == t || u.Origin == ext.Name && u.Kind == KindObject {
			u.Props = append(u.Props, ext.Type.Props...)
		}
	})
	return nil
}

// walk calls a function for every type of the model, with its place.
func (m *Model) walk(each func(where string, t *Type)) {
	var walk func(where string, t *Type)
	walk = func(where string, t *Type) {
		if t == nil {
			return
		}
		each(where, t)
		walk(where, t.Elem)
		for _, p := range t.Props {
			walk(where+"."+p.Name, p.Type)
		}
		for _, v := range t.Variants {
			walk(where, v)
		}
		for _, c := range t.Cases {
			walk(where+"/"+c.Tag, c.Type)
		}
	}
	for _, name := range m.order {
		walk(name, m.defs[name].Type)
	}
	for _, name := range m.morder {
		walk(name+"?", m.methods[name].Params)
		walk(name+"!", m.methods[name].Result)
	}
}

// checkRefs makes sure that every reference has a definition.
func (m *Model) checkRefs() error {
	var missing []string
	m.walk(func(where string, t *Type) {
		if t.Kind == KindRef && m.defs[t.Ref] == nil {
			missing = append(missing, where+" -> "+t.Ref)
		}
	})
	if len(missing) > 0 {
		return fmt.Errorf("references to nothing: %q", missing)
	}
	return nil
}
