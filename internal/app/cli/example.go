package cli

import (
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// exampleWidths are how many fields an example has in the request, in a message in it, and in one in that. 0 is all.
var exampleWidths = []int{0, 3, 1}

// exampleRequest is an example of a message as JSON on one line: all fields of the request, some of the messages in
// it, and one of each oneof.
func exampleRequest(d protoreflect.MessageDescriptor) ([]byte, error) {
	m, err := newMessage(d)
	if err != nil {
		return nil, err
	}
	fillExample(m.ProtoReflect(), 0)
	return jsonText(m)
}

// fillExample sets fields of a message at a depth.
func fillExample(m protoreflect.Message, depth int) {
	if depth == len(exampleWidths) {
		return
	}
	switch known := m.Interface().(type) {
	case *durationpb.Duration:
		known.Seconds = 60
		return
	case *timestamppb.Timestamp:
		known.Seconds = 1767225600 // 2026-01-01T00:00:00Z
		return
	}
	if wellKnown(m.Descriptor()) {
		return
	}
	for _, f := range exampleFields(m.Descriptor(), exampleWidths[depth]) {
		switch {
		case f.IsMap():
			key := protoreflect.ValueOfString("KEY").MapKey()
			if value := m.Mutable(f).Map().NewValue(); f.MapKey().Kind() == protoreflect.StringKind {
				m.Mutable(f).Map().Set(key, exampleValue(f.MapValue(), value, depth))
			}
		case f.IsList():
			list := m.Mutable(f).List()
			list.Append(exampleValue(f, list.NewElement(), depth))
		default:
			m.Set(f, exampleValue(f, m.NewField(f), depth))
		}
	}
}

// exampleFields are fields for an example, at most a number of them unless it is 0: of each oneof the first, and where
// the CLI requires fields, those.
func exampleFields(d protoreflect.MessageDescriptor, most int) []protoreflect.FieldDescriptor {
	var all, required []protoreflect.FieldDescriptor
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		oneof := f.ContainingOneof()
		if f.Name() == "json_extra" || oneof != nil && !oneof.IsSynthetic() && oneof.Fields().Get(0) != f {
			continue
		}
		all = append(all, f)
		if rulesOf(f).GetRequired() {
			required = append(required, f)
		}
	}
	switch {
	case most == 0 || len(all) <= most:
		return all
	case required != nil:
		return required
	}
	return all[:most]
}

// rulesOf are what is known of a field in the CLI's JSON.
func rulesOf(f protoreflect.FieldDescriptor) *jsonv1.FieldRules {
	rules, _ := proto.GetExtension(f.Options(), jsonv1.E_Field).(*jsonv1.FieldRules)
	return rules
}

// exampleValue is a value of a field, or of an element of it. A text is the field's name in capitals,
// a number is 1.
func exampleValue(f protoreflect.FieldDescriptor, empty protoreflect.Value, depth int) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		if rulesOf(f).GetRaw() {
			return protoreflect.ValueOfString("{}")
		}
		return protoreflect.ValueOfString(strings.ToUpper(string(f.Name())))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(1)
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(1)
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(1)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(1)
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(1)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(1)
	case protoreflect.EnumKind:
		values := f.Enum().Values()
		return protoreflect.ValueOfEnum(values.Get(min(1, values.Len()-1)).Number())
	case protoreflect.MessageKind, protoreflect.GroupKind:
		fillExample(empty.Message(), depth+1)
	}
	return empty
}
