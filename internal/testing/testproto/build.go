// Package testproto holds messages that cover every rule of copilot.json.v1,
// for the tests of translation. They are built as descriptors, so that nothing
// of them reaches the published protos.
package testproto

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/descriptorpb"
	_ "google.golang.org/protobuf/types/known/timestamppb" // the tests need its descriptor

	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

const packageName = "copilot.test.v1"

type (
	message = descriptorpb.DescriptorProto
	field   = descriptorpb.FieldDescriptorProto
	rule    func(*message, *field, *jsonv1.FieldRules)
)

// build makes a message: an option per element, numbered fields in order.
func build(name string, shape jsonv1.Shape, parts ...func(*message, *jsonv1.MessageRules)) *message {
	m := &message{Name: proto.String(name), Options: &descriptorpb.MessageOptions{}}
	rules := &jsonv1.MessageRules{Shape: shape}
	for _, p := range parts {
		p(m, rules)
	}
	// Synthetic oneofs must come after the real ones.
	for _, f := range m.Field {
		if f.GetProto3Optional() {
			f.OneofIndex = proto.Int32(int32(len(m.OneofDecl)))
			m.OneofDecl = append(m.OneofDecl, &descriptorpb.OneofDescriptorProto{Name: proto.String("_" + f.GetName())})
		}
	}
	proto.SetExtension(m.Options, jsonv1.E_Message, rules)
	return m
}

func object(name string, parts ...func(*message, *jsonv1.MessageRules)) *message {
	return build(name, jsonv1.Shape_SHAPE_OBJECT, append(parts, extra)...)
}

func union(name, discriminator string, parts ...func(*message, *jsonv1.MessageRules)) *message {
	return build(name, jsonv1.Shape_SHAPE_UNION, append([]func(*message, *jsonv1.MessageRules){
		func(m *message, r *jsonv1.MessageRules) {
			r.Discriminator = discriminator
			m.OneofDecl = append(m.OneofDecl, &descriptorpb.OneofDescriptorProto{Name: proto.String("variant")})
		},
	}, append(parts, unrecognizedCase)...)...)
}

// add appends a field of a type: a scalar's name, or that of a message, or of
// an enum after "enum ", or "map " and a type, or "repeated " and a type.
func add(m *message, name, kind string, number int32, rules ...rule) {
	f := &field{Name: proto.String(name), Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
		Options: &descriptorpb.FieldOptions{}}
	if number == 0 {
		number = int32(len(m.Field)) + 1
	}
	f.Number = proto.Int32(number)
	if rest, ok := strings.CutPrefix(kind, "repeated "); ok {
		f.Label, kind = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum(), rest
	}
	if value, ok := strings.CutPrefix(kind, "map "); ok {
		entry := &message{Name: proto.String(entryName(name)),
			Options: &descriptorpb.MessageOptions{MapEntry: proto.Bool(true)}}
		add(entry, "key", "string", 1)
		add(entry, "value", value, 2)
		m.NestedType = append(m.NestedType, entry)
		f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
		kind = m.GetName() + "." + entry.GetName()
	}
	setType(f, kind)
	r := &jsonv1.FieldRules{}
	for _, apply := range rules {
		apply(m, f, r)
	}
	if !proto.Equal(r, &jsonv1.FieldRules{}) {
		proto.SetExtension(f.Options, jsonv1.E_Field, r)
	}
	m.Field = append(m.Field, f)
}

func setType(f *field, kind string) {
	scalars := map[string]descriptorpb.FieldDescriptorProto_Type{
		"string": descriptorpb.FieldDescriptorProto_TYPE_STRING,
		"bytes":  descriptorpb.FieldDescriptorProto_TYPE_BYTES,
		"bool":   descriptorpb.FieldDescriptorProto_TYPE_BOOL,
		"int64":  descriptorpb.FieldDescriptorProto_TYPE_INT64,
		"int32":  descriptorpb.FieldDescriptorProto_TYPE_INT32,
		"double": descriptorpb.FieldDescriptorProto_TYPE_DOUBLE,
	}
	if t, ok := scalars[kind]; ok {
		f.Type = t.Enum()
		return
	}
	f.Type = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum()
	if name, ok := strings.CutPrefix(kind, "enum "); ok {
		kind = name
		f.Type = descriptorpb.FieldDescriptorProto_TYPE_ENUM.Enum()
	}
	if kind == "time" {
		f.TypeName = proto.String(".google.protobuf.Timestamp")
		return
	}
	f.TypeName = proto.String("." + packageName + "." + kind)
}

// entryName is the name protobuf gives the entry message of a map field.
func entryName(name string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(name, "_") {
		if part != "" {
			b.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return b.String() + "Entry"
}

func has(name, kind string, rules ...rule) func(*message, *jsonv1.MessageRules) {
	return func(m *message, _ *jsonv1.MessageRules) { add(m, name, kind, 0, rules...) }
}

func hasAt(number int32, name, kind string, rules ...rule) func(*message, *jsonv1.MessageRules) {
	return func(m *message, _ *jsonv1.MessageRules) { add(m, name, kind, number, rules...) }
}

func constant(name, valueJSON string) func(*message, *jsonv1.MessageRules) {
	return func(_ *message, r *jsonv1.MessageRules) {
		r.Consts = append(r.Consts, &jsonv1.ConstMember{Name: name, ValueJson: valueJSON})
	}
}

func extra(m *message, _ *jsonv1.MessageRules) { add(m, "json_extra", "string", 1000) }

func unrecognized(m *message, _ *jsonv1.MessageRules) {
	add(m, "unrecognized", "string", 1001, optional)
}

func unrecognizedCase(m *message, _ *jsonv1.MessageRules) {
	add(m, "unrecognized", "string", 1001, inOneof)
}

// The rules of a field.
func required(_ *message, _ *field, r *jsonv1.FieldRules) { r.Required = true }
func nullable(_ *message, _ *field, r *jsonv1.FieldRules) { r.Nullable = true }
func optional(_ *message, f *field, _ *jsonv1.FieldRules) { f.Proto3Optional = proto.Bool(true) }
func inOneof(_ *message, f *field, _ *jsonv1.FieldRules)  { f.OneofIndex = proto.Int32(0) }

// text makes a field JSON text of the member that its name without _json says.
func text(_ *message, f *field, r *jsonv1.FieldRules) {
	r.Raw = true
	name := strings.TrimSuffix(f.GetName(), "_json")
	parts := strings.Split(name, "_")
	for i := range parts[1:] {
		parts[i+1] = strings.ToUpper(parts[i+1][:1]) + parts[i+1][1:]
	}
	r.Member = strings.Join(parts, "")
}

func named(member string) rule {
	return func(_ *message, f *field, _ *jsonv1.FieldRules) { f.JsonName = proto.String(member) }
}

func tag(t string) rule {
	return func(m *message, f *field, r *jsonv1.FieldRules) {
		inOneof(m, f, r)
		r.Tag = t
	}
}
