package translate

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// compiler builds the tables that one message type needs and that are not
// known yet.
type compiler struct {
	known  map[protoreflect.FullName]*Table
	fresh  map[protoreflect.FullName]*Table
	order  []*Table // fresh, inner ones first where there is no cycle
	limits Limits
}

// table compiles md and everything under it. Nothing is left half built in
// known: the caller takes fresh over only when there is no error.
func (c *compiler) table(md protoreflect.MessageDescriptor) (*Table, error) {
	t, err := c.message(md)
	if err != nil {
		return nil, err
	}
	for _, t := range c.order {
		t.rank()
	}
	return t, nil
}

func (c *compiler) message(md protoreflect.MessageDescriptor) (*Table, error) {
	if t := c.known[md.FullName()]; t != nil {
		return t, nil
	}
	if t := c.fresh[md.FullName()]; t != nil {
		return t, nil
	}
	rules, _ := proto.GetExtension(md.Options(), jsonv1.E_Message).(*jsonv1.MessageRules)
	t := &Table{
		md:            md,
		limits:        c.limits,
		shape:         rules.GetShape(),
		discriminator: rules.GetDiscriminator(),
		typeMember:    -1,
		dataMember:    -1,
	}
	if t.shape == jsonv1.Shape_SHAPE_UNSPECIFIED {
		t.shape = jsonv1.Shape_SHAPE_OBJECT
	}
	c.fresh[md.FullName()] = t
	if err := c.fill(t, md, rules); err != nil {
		return nil, fmt.Errorf("compile %q: %w", md.FullName(), err)
	}
	c.order = append(c.order, t)
	return t, nil
}

func (c *compiler) fill(t *Table, md protoreflect.MessageDescriptor, rules *jsonv1.MessageRules) error {
	var own []*field // neither catch-all nor case
	t.dense = make([]*field, 1)
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		switch fd.Number() {
		case extraNumber:
			t.hasExtra = true
		case unrecognizedNumber:
			t.hasUnrecognized = true
		}
		if fd.Number() == extraNumber || fd.Number() == unrecognizedNumber {
			if fd.Kind() != protoreflect.StringKind || fd.IsList() {
				return fmt.Errorf("field %q: a catch-all must be one string", fd.Name())
			}
			continue
		}
		f, err := c.field(fd)
		if err != nil {
			return fmt.Errorf("field %q: %w", fd.Name(), err)
		}
		t.enter(f)
		if f.oneof {
			t.cases = append(t.cases, f)
		} else {
			own = append(own, f)
		}
	}
	if err := t.checkShape(md, rules, own); err != nil {
		return err
	}
	switch t.shape {
	case jsonv1.Shape_SHAPE_OBJECT, jsonv1.Shape_SHAPE_ENVELOPE:
		if err := t.addMembers(rules, own); err != nil {
			return err
		}
	case jsonv1.Shape_SHAPE_LIST, jsonv1.Shape_SHAPE_MAP, jsonv1.Shape_SHAPE_VALUE:
		t.sole = own[0]
	}
	return t.addTags()
}

// checkShape refuses messages that the rules of their shape do not describe.
func (t *Table) checkShape(md protoreflect.MessageDescriptor, rules *jsonv1.MessageRules, own []*field) error {
	cases, fields := 0, len(own)
	switch t.shape {
	case jsonv1.Shape_SHAPE_OBJECT:
	case jsonv1.Shape_SHAPE_ENVELOPE:
		cases = len(t.cases)
		if t.discriminator == "" || rules.GetDataMember() == "" {
			return fmt.Errorf("an envelope needs a discriminator and a data_member")
		}
		if !t.hasUnrecognized {
			return fmt.Errorf("an envelope needs an unrecognized case")
		}
	case jsonv1.Shape_SHAPE_UNION:
		cases, fields = len(t.cases), 0
	case jsonv1.Shape_SHAPE_LIST:
		fields = 1
		if len(own) == 1 && own[0].card != list {
			return fmt.Errorf("a list needs one repeated field")
		}
	case jsonv1.Shape_SHAPE_MAP:
		fields = 1
		if len(own) == 1 && own[0].card != dictionary {
			return fmt.Errorf("a map needs one map field")
		}
	case jsonv1.Shape_SHAPE_VALUE:
		fields = 1
	case jsonv1.Shape_SHAPE_NULL:
		fields = 0
	default:
		return fmt.Errorf("unknown shape %v", t.shape)
	}
	if len(own) != fields || len(t.cases) != cases {
		return fmt.Errorf("%d fields and %d oneof cases do not make %v", len(own), len(t.cases), t.shape)
	}
	real := 0
	for i := range md.Oneofs().Len() {
		if !md.Oneofs().Get(i).IsSynthetic() {
			real++
		}
	}
	if real > 1 {
		return fmt.Errorf("more than one oneof")
	}
	return nil
}

// addMembers numbers the members of an object: consts, fields, payload.
func (t *Table) addMembers(rules *jsonv1.MessageRules, own []*field) error {
	for _, c := range rules.GetConsts() {
		m := member{name: c.GetName(), role: roleConst, value: []byte(c.GetValueJson())}
		if end, k := valueEnd(m.value, 0, defaultMaxDepth); k != 0 || end != len(m.value) {
			return fmt.Errorf("const %q: malformed value", m.name)
		}
		t.members = append(t.members, m)
	}
	for _, f := range own {
		m := member{name: f.key, field: f}
		if t.shape == jsonv1.Shape_SHAPE_ENVELOPE && m.name == t.discriminator {
			if f.kind != kindString || f.card != single {
				return fmt.Errorf("the type of an envelope must be one string")
			}
			// The order of members is the one they are expected in: the CLI writes the
			// payload right behind the type.
			m.role = roleType
			t.typeMember, t.dataMember = len(t.members), len(t.members)+1
			t.members = append(t.members, m, member{name: rules.GetDataMember(), role: roleData})
			continue
		}
		t.members = append(t.members, m)
	}
	if t.shape == jsonv1.Shape_SHAPE_ENVELOPE && t.typeMember < 0 {
		return fmt.Errorf("no field for the type %q", t.discriminator)
	}
	if len(t.members) > maxMembers {
		return fmt.Errorf("%d members, at most %d are supported", len(t.members), maxMembers)
	}
	return t.indexMembers()
}

// indexMembers makes the members findable and tells the fields where they are.
func (t *Table) indexMembers() error {
	var consts []string
	t.index = newNames(len(t.members))
	t.follows = make([]atomic.Int32, len(t.members)+1)
	for i := range t.members {
		t.follows[i].Store(int32(i))
		m := &t.members[i]
		quoted, ok := appendString(nil, []byte(m.name))
		if !ok || m.name == absentName || m.name == valueName || !t.index.add(m.name, int32(i)) {
			return fmt.Errorf("member %q: name is invalid, reserved or used twice", m.name)
		}
		m.quoted = string(quoted)
		m.key = m.quoted + ":"
		switch {
		case m.role == roleConst:
			t.required.add(i)
			consts = append(consts, m.key+string(m.value))
		case m.role == roleData:
			for _, f := range t.cases {
				f.member, f.key = i, m.key
			}
		default:
			m.field.member, m.field.key = i, m.key
			if m.field.required {
				t.required.add(i)
			}
		}
	}
	t.consts = strings.Join(consts, ",")
	return nil
}

// addTags indexes the cases of a union or envelope by discriminator value.
func (t *Table) addTags() error {
	n := 0
	for _, f := range t.cases {
		n += len(f.tags)
	}
	if n == 0 {
		return nil
	}
	t.tags = newNames(n)
	for i, f := range t.cases {
		for _, tag := range f.tags {
			if !t.tags.add(tag, int32(i)) {
				return fmt.Errorf("tag %q is used twice", tag)
			}
		}
	}
	return nil
}

// enter makes a field findable by number.
func (t *Table) enter(f *field) {
	const denseLimit = 1024
	if f.number >= denseLimit {
		if t.sparse == nil {
			t.sparse = make(map[int32]*field)
		}
		t.sparse[f.number] = f
		return
	}
	for int(f.number) >= len(t.dense) {
		t.dense = append(t.dense, nil)
	}
	t.dense[f.number] = f
}

// rank sorts the cases of a union by the kinds of JSON value they take, the
// narrower ones first. Unions inside unions are ranked before, or, in a cycle,
// counted as objects.
func (t *Table) rank() {
	if t.shape != jsonv1.Shape_SHAPE_UNION {
		return
	}
	for _, f := range t.cases {
		accepts := f.accepts()
		if accepts == 0 {
			accepts = 1 << jsonObject
		}
		for kind := range t.byKind {
			if accepts&(1<<kind) != 0 {
				t.byKind[kind] = append(t.byKind[kind], f)
			}
		}
	}
	for _, candidates := range t.byKind {
		slices.SortStableFunc(candidates, func(a, b *field) int { return a.breadth() - b.breadth() })
	}
	for _, f := range t.byKind[jsonObject] {
		if t.discriminator == "" || len(f.tags) == 0 {
			t.untagged = append(t.untagged, f)
		}
	}
}

// breadth orders candidates for the same kind of JSON value: the one that takes
// everything comes last.
func (f *field) breadth() int {
	switch f.kind {
	case kindString, kindDouble:
		return 1
	case kindMessage:
		if f.message.shape == jsonv1.Shape_SHAPE_OBJECT {
			return 0
		}
		return 2
	case kindText:
		return 3
	}
	return 0
}
