package reference

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

const (
	extraNumber        = 1000
	unrecognizedNumber = 1001
)

func messageRules(md protoreflect.MessageDescriptor) *jsonv1.MessageRules {
	return proto.GetExtension(md.Options(), jsonv1.E_Message).(*jsonv1.MessageRules)
}

func fieldRules(fd protoreflect.FieldDescriptor) *jsonv1.FieldRules {
	return proto.GetExtension(fd.Options(), jsonv1.E_Field).(*jsonv1.FieldRules)
}

func memberName(fd protoreflect.FieldDescriptor) string {
	if name := fieldRules(fd).GetMember(); name != "" {
		return name
	}
	return fd.JSONName()
}

// isCase tells whether a field is an alternative of a real oneof.
func isCase(fd protoreflect.FieldDescriptor) bool {
	return fd.ContainingOneof() != nil && !fd.ContainingOneof().IsSynthetic()
}

// own returns the fields that are neither catch-alls nor alternatives.
func own(md protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	var out []protoreflect.FieldDescriptor
	for _, fd := range all(md) {
		if !isCase(fd) {
			out = append(out, fd)
		}
	}
	return out
}

// cases returns the alternatives of the oneof, without unrecognized.
func cases(md protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	var out []protoreflect.FieldDescriptor
	for _, fd := range all(md) {
		if isCase(fd) {
			out = append(out, fd)
		}
	}
	return out
}

func all(md protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	var out []protoreflect.FieldDescriptor
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		if fd.Number() != extraNumber && fd.Number() != unrecognizedNumber {
			out = append(out, fd)
		}
	}
	return out
}

func isObject(md protoreflect.MessageDescriptor) bool {
	switch messageRules(md).GetShape() {
	case jsonv1.Shape_SHAPE_UNSPECIFIED, jsonv1.Shape_SHAPE_OBJECT, jsonv1.Shape_SHAPE_ENVELOPE:
		return true
	}
	return false
}

func isTimestamp(fd protoreflect.FieldDescriptor) bool {
	return fd.Message() != nil && fd.Message().FullName() == "google.protobuf.Timestamp"
}

func single(fd protoreflect.FieldDescriptor) bool { return !fd.IsList() && !fd.IsMap() }

// enumText returns the JSON string of an enum number; ok is false for zero and
// for numbers that have none.
func enumText(ed protoreflect.EnumDescriptor, number protoreflect.EnumNumber) (string, bool) {
	vd := ed.Values().ByNumber(number)
	if vd == nil || number == 0 || !proto.HasExtension(vd.Options(), jsonv1.E_EnumValue) {
		return "", false
	}
	return proto.GetExtension(vd.Options(), jsonv1.E_EnumValue).(*jsonv1.EnumValueRules).GetValue(), true
}

// kinds returns the kinds of JSON value that a field takes.
func kinds(fd protoreflect.FieldDescriptor) string {
	switch {
	case fd.IsList():
		return "a"
	case fd.IsMap():
		return "o"
	case fieldRules(fd).GetRaw():
		return "nb#sao"
	}
	switch fd.Kind() {
	case protoreflect.BoolKind:
		return "b"
	case protoreflect.Int64Kind, protoreflect.DoubleKind:
		return "#"
	case protoreflect.MessageKind:
		if isTimestamp(fd) {
			return "s"
		}
		return messageKinds(fd.Message())
	}
	return "s"
}

func messageKinds(md protoreflect.MessageDescriptor) string {
	switch messageRules(md).GetShape() {
	case jsonv1.Shape_SHAPE_UNION:
		var out string
		for _, fd := range cases(md) {
			out += kinds(fd)
		}
		return out
	case jsonv1.Shape_SHAPE_LIST:
		return "a"
	case jsonv1.Shape_SHAPE_VALUE:
		return "n" + kinds(md.Fields().ByName("value"))
	case jsonv1.Shape_SHAPE_NULL:
		return "n"
	}
	return "o"
}

// breadth orders the alternatives for one kind of JSON value.
func breadth(fd protoreflect.FieldDescriptor) int {
	switch {
	case fieldRules(fd).GetRaw():
		return 3
	case isTimestamp(fd):
		return 0
	case fd.Kind() == protoreflect.StringKind, fd.Kind() == protoreflect.DoubleKind:
		return 1
	case fd.Kind() == protoreflect.MessageKind && messageRules(fd.Message()).GetShape() > jsonv1.Shape_SHAPE_OBJECT:
		return 2
	}
	return 0
}
