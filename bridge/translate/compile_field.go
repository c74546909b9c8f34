package translate

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// field compiles one field. Until addMembers has numbered it, its key is the
// bare member name.
func (c *compiler) field(fd protoreflect.FieldDescriptor) (*field, error) {
	rules, _ := proto.GetExtension(fd.Options(), jsonv1.E_Field).(*jsonv1.FieldRules)
	f := &field{
		name:     string(fd.Name()),
		member:   -1,
		key:      fd.JSONName(),
		number:   int32(fd.Number()),
		required: rules.GetRequired(),
	}
	if rules.GetMember() != "" {
		f.key = rules.GetMember()
	}
	if tag := rules.GetTag(); tag != "" {
		f.tags = strings.Split(tag, ",")
	}
	if o := fd.ContainingOneof(); o != nil && !o.IsSynthetic() {
		f.oneof = true
	}
	wire := protowire.BytesType
	var err error
	switch {
	case fd.IsMap():
		f.card = dictionary
		if fd.MapKey().Kind() != protoreflect.StringKind {
			return nil, fmt.Errorf("a map's key must be a string")
		}
		f.entry = &field{name: "value", member: -1, number: 2}
		wire, err = c.value(f.entry, fd.MapValue(), rules.GetRaw())
		f.entry.tag = protowire.EncodeTag(2, wire)
		wire = protowire.BytesType
	case fd.IsList():
		f.card = list
		wire, err = c.value(f, fd, rules.GetRaw())
		if wire != protowire.BytesType {
			f.packedTag = protowire.EncodeTag(fd.Number(), protowire.BytesType)
		}
	default:
		wire, err = c.value(f, fd, rules.GetRaw())
	}
	if err != nil {
		return nil, err
	}
	f.tag = protowire.EncodeTag(fd.Number(), wire)
	f.defaults(fd.HasPresence(), rules.GetNullable())
	return f, nil
}

// defaults derives what null, absence and zero mean for the field.
func (f *field) defaults(presence, nullable bool) {
	f.nullable = f.required && nullable && f.card == single
	f.spareNull = !f.required && nullable
	f.takesNull = nullable
	switch {
	case presence || f.card != single:
		f.zero = zeroKept
	case f.required && !nullable:
		f.zero = zeroImplied
	default:
		f.zero = zeroMisfit
	}
	if !f.required {
		return
	}
	switch {
	case f.card == list:
		f.zeroText = "[]"
	case f.card == dictionary:
		f.zeroText = "{}"
	case f.nullable || f.kind == kindText:
		f.zeroText = "null"
	case f.kind == kindString || f.kind == kindBytes:
		f.zeroText = `""`
	case f.kind == kindBool:
		f.zeroText = "false"
	case f.kind == kindInt || f.kind == kindDouble:
		f.zeroText = "0"
	}
}

// value compiles what one value of the field is and returns its wire type.
func (c *compiler) value(f *field, fd protoreflect.FieldDescriptor, text bool) (protowire.Type, error) {
	if text {
		if fd.Kind() != protoreflect.StringKind {
			return 0, fmt.Errorf("JSON text must be a string")
		}
		f.kind = kindText
		return protowire.BytesType, nil
	}
	switch fd.Kind() {
	case protoreflect.StringKind:
		f.kind = kindString
	case protoreflect.BytesKind:
		f.kind = kindBytes
	case protoreflect.BoolKind:
		f.kind = kindBool
		return protowire.VarintType, nil
	case protoreflect.Int64Kind:
		f.kind = kindInt
		return protowire.VarintType, nil
	case protoreflect.DoubleKind:
		f.kind = kindDouble
		return protowire.Fixed64Type, nil
	case protoreflect.EnumKind:
		f.kind = kindEnum
		var err error
		f.enum, err = compileEnum(fd.Enum())
		return protowire.VarintType, err
	case protoreflect.MessageKind:
		if fd.Message().FullName() == "google.protobuf.Timestamp" {
			f.kind = kindTimestamp
			break
		}
		f.kind = kindMessage
		var err error
		f.message, err = c.message(fd.Message())
		return protowire.BytesType, err
	default:
		return 0, fmt.Errorf("kind %v has no JSON form", fd.Kind())
	}
	return protowire.BytesType, nil
}

func compileEnum(ed protoreflect.EnumDescriptor) (*enum, error) {
	values := ed.Values()
	e := &enum{byValue: newNames(values.Len()), byNumber: make(map[int32]string)}
	for i := range values.Len() {
		vd := values.Get(i)
		rules, _ := proto.GetExtension(vd.Options(), jsonv1.E_EnumValue).(*jsonv1.EnumValueRules)
		// Zero means unset, which is no value; neither is one without a rule, nor
		// a second name of a number, which would come back as the first.
		if rules == nil || vd.Number() == 0 || e.byNumber[int32(vd.Number())] != "" {
			continue
		}
		if !e.byValue.add(rules.GetValue(), int32(vd.Number())) {
			return nil, fmt.Errorf("enum %q: value %q is used twice", ed.FullName(), rules.GetValue())
		}
		quoted, ok := appendString(nil, []byte(rules.GetValue()))
		if !ok {
			return nil, fmt.Errorf("enum %q: value %q is not UTF-8", ed.FullName(), rules.GetValue())
		}
		e.byNumber[int32(vd.Number())] = string(quoted)
	}
	return e, nil
}
