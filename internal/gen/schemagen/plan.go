package schemagen

import (
	"fmt"
	"slices"
	"strings"
)

// Shape is the name of a value of copilot.json.v1.Shape.
type Shape string

// The shapes.
const (
	ShapeObject   Shape = "SHAPE_OBJECT"
	ShapeUnion    Shape = "SHAPE_UNION"
	ShapeEnvelope Shape = "SHAPE_ENVELOPE"
	ShapeList     Shape = "SHAPE_LIST"
	ShapeMap      Shape = "SHAPE_MAP"
	ShapeValue    Shape = "SHAPE_VALUE"
	ShapeNull     Shape = "SHAPE_NULL"
)

// The numbers of the fields that hold what does not fit.
const (
	jsonExtraNumber    = 1000
	unrecognizedNumber = 1001
)

// Message is a planned protobuf message.
type Message struct {
	Name           string
	Shape          Shape
	Consts         []Const
	Discriminator  string
	DataMember     string
	ParamsOptional bool
	Internal       bool
	Deprecated     bool
	TopLevel       bool   // the request or response of an rpc
	Path           string // where it comes from: a definition, or a place within one
	Method         *Method
	Doc            string
	Life           Life
	Fields         []*Field
	Reserved       []int
	File           string
}

// Const is a member with one possible value.
type Const struct {
	Name, Value string
}

// Field is a planned field.
type Field struct {
	JSON       string // the JSON member; empty for cases of unions and envelopes
	Name       string
	Renamed    bool   // another field has the name it would have
	Type       string // proto type
	Repeated   bool
	Map        bool
	Optional   bool
	Case       bool // part of the oneof
	Raw        bool
	Required   bool
	Nullable   bool
	Internal   bool
	Deprecated bool
	Secret     bool // debug output leaves it out
	Tag        string
	Number     int
	Doc        string
	Source     *Type
	Life       Life
}

// typeSig is the field's type as the ledger knows it.
func (f *Field) typeSig() string {
	switch {
	case f.Repeated:
		return "repeated " + f.Type
	case f.Map:
		return "map<string, " + f.Type + ">"
	}
	return f.Type
}

// Enum is a planned protobuf enum.
type Enum struct {
	Name     string
	Path     string
	Doc      string
	Open     bool
	Life     Life
	Values   []*EnumValue
	Reserved []int
	File     string
}

// EnumValue is a value of a planned enum.
type EnumValue struct {
	JSON, Name, Doc string
	Number          int
	Life            Life
}

// Service is a planned protobuf service.
type Service struct {
	Name, Namespace, File string
	Root                  Root
	Internal              bool
	RPCs                  []*RPC
}

// RPC is a planned method of a service.
type RPC struct {
	Name              string
	Method            *Method
	Request, Response *Message
}

// Plan is everything that is written out.
type Plan struct {
	Model    *Model
	Messages map[string]*Message
	Enums    map[string]*Enum
	Services []*Service
	Roots    []string // definitions that are there for their own sake
}

// planner turns a model into a plan. It visits every method, every event and every definition of the overlay, and from
// there everything that they refer to.
type planner struct {
	plan *Plan
	m    *Model
	errs []string
	hits map[string]bool // rows of exception tables that were needed
}

func newPlan(m *Model) (*Plan, map[string]bool, error) {
	p := &planner{
		m:    m,
		plan: &Plan{Model: m, Messages: map[string]*Message{}, Enums: map[string]*Enum{}},
		hits: map[string]bool{},
	}
	for _, name := range m.order {
		if d := m.defs[name]; name == eventUnion || d.Overlay && !p.flattened(name) {
			p.definition(name)
			p.plan.Roots = append(p.plan.Roots, name)
		}
	}
	p.services()
	if len(p.errs) > 0 {
		return nil, nil, fmt.Errorf("plan: %s", strings.Join(p.errs, "; "))
	}
	return p.plan, p.hits, p.plan.checkNames()
}

func (p *planner) fail(format string, args ...any) {
	p.errs = append(p.errs, fmt.Sprintf(format, args...))
}

// flattened reports whether a definition is the parameters or the result of a
// method, and so becomes part of another message.
func (p *planner) flattened(name string) bool {
	for _, x := range p.m.methods {
		for _, t := range []*Type{x.Params, x.Result} {
			if t != nil && t.Kind == KindRef && t.Ref == name {
				return true
			}
		}
	}
	return false
}

// definition plans a definition of any kind under its name.
func (p *planner) definition(name string) {
	d := p.m.defs[name]
	switch d.Type.Kind {
	case KindObject, KindUnion, KindEnvelope:
		p.named(name)
	case KindEnum:
		p.enum(name, name, d.Type)
	}
}

// named plans the message of a definition, once.
func (p *planner) named(name string) *Message {
	if msg, ok := p.plan.Messages[name]; ok {
		if msg.Path != name {
			p.fail("%s and the definition both become message %s", msg.Path, name)
		}
		return msg
	}
	d := p.m.defs[name]
	msg := p.message(name, name, d.Type)
	msg.Doc, msg.Life = d.Doc, d.Life
	msg.Internal = d.Internal
	return msg
}

// message plans a message for an object, a union or an envelope.
func (p *planner) message(name, path string, t *Type) *Message {
	if old, ok := p.plan.Messages[name]; ok {
		p.fail("%s and %s both become message %s", old.Path, path, name)
		return old
	}
	msg := p.add(&Message{Name: name, Path: path, Shape: ShapeObject, Life: p.m.ever(), Deprecated: t.Deprecated})
	p.fill(msg, t)
	return msg
}

// add adds a message to the plan.
func (p *planner) add(msg *Message) *Message {
	if old, ok := p.plan.Messages[msg.Name]; ok {
		p.fail("%s and %s both become message %s", old.Path, msg.Path, msg.Name)
	}
	p.plan.Messages[msg.Name] = msg
	return msg
}

// fill gives a message the fields of a type.
func (p *planner) fill(msg *Message, t *Type) {
	switch t.Kind {
	case KindObject:
		p.members(msg, t.Props)
	case KindUnion:
		p.union(msg, t)
	case KindEnvelope:
		p.envelope(msg, t)
	default:
		p.fail("%s: a %s is no message", msg.Path, describe(t))
	}
}

func (p *planner) members(msg *Message, props []*Prop) {
	for _, prop := range props {
		if c, ok := p.constant(prop); ok {
			msg.Consts = append(msg.Consts, Const{prop.Name, c})
			continue
		}
		f := p.field(msg, prop)
		free := freeName(msg, f.Name)
		f.Name, f.Renamed = free, free != f.Name
		msg.Fields = append(msg.Fields, f)
	}
}

// constant is the value of a required member that has only one.
func (p *planner) constant(prop *Prop) (string, bool) {
	t, _ := p.m.resolve(prop.Type)
	if !prop.Required || t.Nullable {
		return "", false
	}
	switch {
	case t.Kind == KindConst:
		return t.Const, true
	case t.Kind == KindEnum && len(t.Values) == 1 && !t.Extensible:
		return quote(t.Values[0].Name), true
	}
	return "", false
}

// freeName avoids a name that the message has already.
func freeName(msg *Message, name string) string {
	try := name
	for i := 2; slices.ContainsFunc(msg.Fields, func(f *Field) bool {
		return f.Name == try || strings.EqualFold(lowerCamel(f.Name), lowerCamel(try))
	}); i++ {
		try = fmt.Sprintf("%s_%d", name, i)
	}
	return try
}

// checkNames makes sure that no two things of the package have one name: values
// of enums are siblings of their enum.
func (pl *Plan) checkNames() error {
	owner := map[string]string{}
	var clashes []string
	claim := func(name, who string) {
		if old, ok := owner[name]; ok {
			clashes = append(clashes, fmt.Sprintf("%s: %s and %s", name, old, who))
		}
		owner[name] = who
	}
	for _, name := range sortedKeys(pl.Messages) {
		claim(name, "message of "+pl.Messages[name].Path)
	}
	for _, name := range sortedKeys(pl.Enums) {
		claim(name, "enum of "+pl.Enums[name].Path)
		claim(enumPrefix(name)+"_UNSPECIFIED", name)
		for _, v := range pl.Enums[name].Values {
			claim(v.Name, name)
		}
	}
	for _, s := range pl.Services {
		claim(s.Name, "service of "+s.Namespace)
	}
	if len(clashes) > 0 {
		return fmt.Errorf("names taken twice: %s", strings.Join(clashes, "; "))
	}
	return nil
}
