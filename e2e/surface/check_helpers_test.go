package surface

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// checker compares what the CLI's schemas say with what the server says of itself.
type checker struct {
	api      *reflection
	cli      *surface
	seen     map[string]bool // definitions at slots that were compared
	findings map[string]bool
}

func (c *checker) tell(format string, args ...any) {
	c.findings[fmt.Sprintf(format, args...)] = true
}

func (c *checker) told() []string { return slices.Sorted(maps.Keys(c.findings)) }

// try compares and takes back what was found: how many findings there were.
func (c *checker) try(path string, node rawSchema, s slot) int {
	probe := &checker{api: c.api, cli: c.cli, seen: maps.Clone(c.seen), findings: map[string]bool{}}
	probe.value(path, node, s)
	return len(probe.findings)
}

// note remembers that a definition was met. It returns its name, if there is one.
func (c *checker) note(node rawSchema) string {
	ref, ok := node["$ref"].(string)
	if !ok {
		return ""
	}
	name := ref[strings.LastIndex(ref, "/")+1:]
	c.seen[name] = true
	return name
}

// noteAll remembers everything below a schema: the parts of a handle within the CLI's process are never sent.
func (c *checker) noteAll(v any) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			c.noteAll(e)
		}
	case map[string]any:
		c.noteAll(rawSchema(v))
	case rawSchema:
		if ref, _ := v["$ref"].(string); ref != "" && !c.seen[ref[strings.LastIndex(ref, "/")+1:]] {
			c.noteAll(c.cli.definitions[c.note(v)])
		}
		for _, e := range v {
			c.noteAll(e)
		}
	}
}

// value checks that a slot can hold every value that a schema allows, in typed form.
func (c *checker) value(path string, node rawSchema, s slot) {
	if name := c.note(node); name != "" {
		key := name + " in " + s.String()
		if c.seen[key] {
			return
		}
		c.seen[key] = true
		c.value(name, c.cli.definitions[name], s)
		return
	}
	node = unwrapped(node)
	switch {
	case node["type"] == "null" && s.holdsNull():
		return
	case len(alternatives(node)) > 1:
		c.union(path, node, s)
		return
	case len(alternatives(node)) == 1:
		c.value(path, alternatives(node)[0], s)
		return
	}
	if s.raw() {
		if !c.opaque(node) {
			c.tell("%s: JSON text in %v, though the schema says what it is", path, s)
		}
		return
	}
	if m := s.inner(); m != nil && m.ParentFile().Package() == cliPackage {
		c.inMessage(path, node, s, m)
		return
	}
	c.bare(path, node, s)
}

// inMessage compares a schema with a message by the message's shape.
func (c *checker) inMessage(path string, node rawSchema, s slot, m protoreflect.MessageDescriptor) {
	switch messageRules(m).GetShape() {
	case jsonv1.Shape_SHAPE_LIST:
		c.value(path, node, slot{field: m.Fields().ByName("items")})
	case jsonv1.Shape_SHAPE_MAP:
		c.value(path, node, slot{field: m.Fields().ByName("entries")})
	case jsonv1.Shape_SHAPE_VALUE:
		c.value(path, node, slot{field: m.Fields().ByName("value")})
	case jsonv1.Shape_SHAPE_NULL:
		c.tell("%s: %v in %v, which is always null", path, node["type"], s)
	case jsonv1.Shape_SHAPE_UNION:
		if !c.oneCase(path, node, m) {
			c.tell("%s: no case of %s", path, m.FullName())
		}
	default:
		c.members(path, node, m)
	}
}

// bare compares a schema with a field that is no message of the API.
func (c *checker) bare(path string, node rawSchema, s slot) {
	switch typ := node["type"]; {
	case node["enum"] != nil || node["const"] != nil || node["x-extensible-enum"] != nil:
		c.constants(path, node, s)
	case typ == "array":
		if s.field == nil || !s.field.IsList() || s.element {
			c.tell("%s: an array in %v", path, s)
			return
		}
		c.value(path+"[]", object(node["items"]), slot{field: s.field, element: true})
	case typ == "object" && node["properties"] == nil:
		if s.field == nil || !s.field.IsMap() || s.element {
			c.tell("%s: a dictionary in %v", path, s)
			return
		}
		c.value(path+"{}", object(node["additionalProperties"]), slot{field: s.field, element: true})
	default:
		c.scalars(path, node, s)
	}
}

func (c *checker) scalars(path string, node rawSchema, s slot) {
	f := s.scalar()
	if f == nil {
		c.tell("%s: %v in %v", path, node["type"], s)
		return
	}
	kind := f.Kind()
	ok := false
	switch node["type"] {
	case "string":
		isTime := f.Message() != nil && f.Message().FullName() == "google.protobuf.Timestamp"
		isBytes := kind == protoreflect.BytesKind
		ok = kind == protoreflect.StringKind || isTime && node["format"] == "date-time" || isBytes &&
			node["contentEncoding"] == "base64"
	case "boolean":
		ok = kind == protoreflect.BoolKind
	case "integer":
		ok = kind == protoreflect.Int64Kind || kind == protoreflect.DoubleKind
	case "number":
		ok = kind == protoreflect.DoubleKind
	}
	if !ok {
		c.tell("%s: %v %v in %v", path, node["type"], node["format"], s)
	}
}

// constants checks the values of an enum, or the one of a constant.
func (c *checker) constants(path string, node rawSchema, s slot) {
	values := slices.Concat(list(node["enum"]), list(node["x-extensible-enum"]))
	if node["const"] != nil {
		values = append(values, node["const"])
	}
	f := s.scalar()
	for _, v := range values {
		text, isText := v.(string)
		switch {
		case f == nil:
			c.tell("%s: %v in %v", path, v, s)
		case isText && f.Enum() != nil && !slices.Contains(enumValues(f.Enum()), text):
			c.tell("%s: %s has no value %q", path, f.Enum().FullName(), text)
		case isText && f.Enum() == nil && f.Kind() != protoreflect.StringKind,
			!isText && f.Kind() != protoreflect.BoolKind && f.Kind() != protoreflect.DoubleKind:
			c.tell("%s: %v in %v", path, v, s)
		}
	}
}

// members checks that every property has a field, or is a constant of the message.
func (c *checker) members(path string, node rawSchema, m protoreflect.MessageDescriptor) {
	if typ := node["type"]; typ != "object" && typ != nil {
		c.tell("%s: %v in the object %s", path, typ, m.FullName())
		return
	}
	rules := messageRules(m)
	for name, p := range object(node["properties"]) {
		at := path + "." + name
		if name == rules.GetDataMember() && rules.GetDataMember() != "" {
			continue // the cases of an envelope are compared one by one
		}
		if object(p)["x-opaque-in-process"] != nil {
			c.noteAll(p)
			continue // a handle within the CLI's process: it is never sent
		}
		if f := memberField(m, name); f != nil {
			c.value(at, object(p), slot{field: f})
			continue
		}
		text, err := json.Marshal(c.constant(object(p)))
		if err != nil || !slices.ContainsFunc(rules.GetConsts(), func(k *jsonv1.ConstMember) bool {
			return k.GetName() == name && k.GetValueJson() == string(text)
		}) {
			c.tell("%s: %s has neither a field nor the constant %s", at, m.FullName(), text)
		}
	}
	// Typed values under unknown names are in json_extra.
	if node["properties"] == nil && object(node["additionalProperties"]) != nil && !c.opaque(node) {
		c.tell("%s: a dictionary in the object %s", path, m.FullName())
	}
}

// constant is the one value that a schema allows.
func (c *checker) constant(node rawSchema) any {
	c.note(node)
	node = c.cli.resolve(node)
	if values := list(node["enum"]); len(values) == 1 {
		return values[0]
	}
	return node["const"]
}

// union checks that every alternative has a place.
func (c *checker) union(path string, node rawSchema, s slot) {
	if s.raw() {
		if !slices.ContainsFunc(alternatives(node), c.opaque) {
			c.tell("%s: JSON text in %v, though the schema lists the alternatives", path, s)
		}
		return
	}
	m := s.inner()
	shape := jsonv1.Shape_SHAPE_UNSPECIFIED
	if m != nil {
		shape = messageRules(m).GetShape()
	}
	for _, v := range alternatives(node) {
		switch shape {
		case jsonv1.Shape_SHAPE_ENVELOPE:
			c.note(v)
			c.envelopeCase(path, c.cli.resolve(v), m)
		default:
			c.value(path, v, s)
		}
	}
}

// envelopeCase compares one alternative of an envelope, its payload with the case of
// that tag and the rest with the envelope itself.
func (c *checker) envelopeCase(path string, node rawSchema, m protoreflect.MessageDescriptor) {
	rules := messageRules(m)
	properties := maps.Clone(object(node["properties"]))
	tag := fmt.Sprint(c.constant(object(properties[rules.GetDiscriminator()])))
	cases := m.Oneofs().ByName("data").Fields()
	for i := range cases.Len() {
		if fieldRules(cases.Get(i)).GetTag() == tag {
			c.value(tag, object(properties[rules.GetDataMember()]), slot{field: cases.Get(i)})
			delete(properties, rules.GetDataMember())
		}
	}
	if _, ok := properties[rules.GetDataMember()]; ok {
		c.tell("%s: no case for %s %q", path, rules.GetDiscriminator(), tag)
	}
	properties[rules.GetDiscriminator()] = map[string]any{"type": "string"}
	c.members(path, rawSchema{"type": "object", "properties": map[string]any(properties)}, m)
}

// oneCase looks for the case of a union that can hold a value, and compares it.
func (c *checker) oneCase(path string, node rawSchema, m protoreflect.MessageDescriptor) bool {
	cases := m.Oneofs().ByName("variant").Fields()
	for i := range cases.Len() {
		if f := cases.Get(i); f.Number() != 1001 && c.try(path, node, slot{field: f}) == 0 {
			c.value(path, node, slot{field: f})
			return true
		}
	}
	return false
}

// unwrapped takes apart what says nothing about the form: null, "undefined", and lists of
// one type.
func unwrapped(node rawSchema) rawSchema {
	types := list(node["type"])
	if types == nil {
		return node
	}
	types = slices.DeleteFunc(slices.Clone(types), func(t any) bool { return t == "null" })
	out := maps.Clone(node)
	delete(out, "type")
	switch len(types) {
	case 0:
		out["type"] = "null"
	case 1:
		out["type"] = types[0]
	default:
		var anyOf []any
		for _, typ := range types {
			anyOf = append(anyOf, map[string]any{"type": typ, "items": node["items"]})
		}
		return rawSchema{"anyOf": anyOf}
	}
	return out
}

// alternatives are the alternatives of anyOf that are a value at all.
func alternatives(node rawSchema) []rawSchema {
	var out []rawSchema
	for _, v := range list(node["anyOf"]) {
		o := object(v)
		_, never := o["not"]
		_, required := o["required"]
		if o["type"] == "null" || never || required && len(o) == 1 {
			continue
		}
		out = append(out, o)
	}
	return out
}

// opaque reports a schema that says nothing about the inside of its values.
func (c *checker) opaque(node rawSchema) bool {
	c.note(node)
	node = unwrapped(c.cli.resolve(node))
	switch {
	case node["x-opaque-in-process"] != nil, node["x-opaque-json"] != nil:
		return true
	case node["enum"] != nil, node["const"] != nil, len(object(node["properties"])) > 0:
		return false
	case len(list(node["anyOf"])) > 0:
		return slices.ContainsFunc(alternatives(node), c.opaque)
	case node["type"] == "array":
		return c.opaque(object(node["items"]))
	case node["type"] == "object":
		rest, typed := node["additionalProperties"].(map[string]any)
		return !typed || c.opaque(rest)
	}
	return node["type"] == nil || node["type"] == "null"
}

// unreached checks the definitions that nothing in the schemas leads to, and counts them: they are parameters of
// methods, which the schemas repeat in place. Definitions that a method names as a title are compared with its request;
// the request of some method has the rest.
func (c *checker) unreached() int {
	requests := map[string][]protoreflect.MessageDescriptor{}
	for _, m := range c.cli.methods {
		if rpc := c.api.methods[m.name]; rpc != nil {
			params := object(m.params)
			for _, node := range append(alternatives(params), params) {
				title := fmt.Sprint(node["title"])
				requests[title] = append(requests[title], rpc.Input())
			}
			requests[""] = append(requests[""], rpc.Input())
		}
	}
	n := 0
	for _, name := range slices.Sorted(maps.Keys(c.cli.definitions)) {
		if c.seen[name] {
			continue
		}
		n++
		candidates := requests[name]
		if candidates == nil {
			candidates = requests[""]
		}
		node := c.cli.definitions[name]
		if !slices.ContainsFunc(candidates, func(m protoreflect.MessageDescriptor) bool {
			return c.try(name, node, slot{message: m}) == 0
		}) {
			c.tell("definition %s: nothing has its members", name)
		}
	}
	return n
}
