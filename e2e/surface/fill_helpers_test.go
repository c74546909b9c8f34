package surface

import (
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"

	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// filler makes parameters from nothing but a message's descriptor.
type filler struct {
	// whole sets what may be left out, too: lists and maps get an entry, and unions their
	// second case and not the first.
	whole bool
}

const (
	// maxFill bounds the nesting of generated parameters.
	maxFill = 6
	// maxWhole is how deep what may be left out is set, too.
	maxWhole = 3
)

// texts are the values of fields that hold JSON or text of a form that no schema tells.
var texts = map[string]string{
	"copilot.cli.v1.SessionMcpServiceExecuteSamplingRequest.request_json": `{"messages":[],"maxTokens":1}`,
}

// unsent are members that only the CLI sets, in objects that go both ways: the overlay has
// them because they are in answers, and the CLI does not take them in a request.
var unsent = map[protoreflect.FullName][]protoreflect.Name{
	"copilot.cli.v1.ModelCapabilities":         {"family", "object", "tokenizer", "type"},
	"copilot.cli.v1.ModelCapabilitiesSupports": {"parallel_tool_calls", "streaming", "tool_calls"},
}

// fill sets what a message requires, and of a union one case.
func (f filler) fill(m protoreflect.Message, depth int) {
	if depth > maxFill {
		return
	}
	md := m.Descriptor()
	if messageRules(md).GetShape() == jsonv1.Shape_SHAPE_UNION {
		fd := f.variant(md)
		m.Set(fd, f.value(m, fd, depth))
		return
	}
	for i := range md.Fields().Len() {
		fd := md.Fields().Get(i)
		rules := fieldRules(fd)
		if fd.Number() == jsonExtra || slices.Contains(unsent[md.FullName()], fd.Name()) ||
			fd.ContainingOneof() != nil && !fd.ContainingOneof().IsSynthetic() {
			continue
		}
		if f.whole && depth < maxWhole || rules.GetRequired() && !rules.GetNullable() && !fd.IsMap() {
			m.Set(fd, f.value(m, fd, depth))
		}
	}
}

// The numbers of json_extra and unrecognized, in every message that has them.
const (
	jsonExtra    = 1000
	unrecognized = 1001
)

// variant is the case of a union that is filled. The oldest CLI knows the first two: cases have been added behind.
func (f filler) variant(md protoreflect.MessageDescriptor) protoreflect.FieldDescriptor {
	cases := md.Oneofs().Get(0).Fields()
	if second := cases.Get(min(1, cases.Len()-1)); f.whole && second.Number() != unrecognized &&
		second.Message() != md {
		return second
	}
	return cases.Get(0)
}

// value is some value of a field.
func (f filler) value(m protoreflect.Message, fd protoreflect.FieldDescriptor, depth int) protoreflect.Value {
	v := m.NewField(fd)
	switch {
	case !f.whole && (fd.IsList() || fd.IsMap()):
	case fd.IsMap():
		e := v.Map().NewValue()
		if fd.MapValue().Message() == nil {
			e = f.scalar(fd.MapValue())
		} else {
			f.fill(e.Message(), depth+1)
		}
		v.Map().Set(protoreflect.ValueOfString("x").MapKey(), e)
	case fd.IsList() && fd.Message() != nil:
		e := v.List().NewElement()
		f.fill(e.Message(), depth+1)
		v.List().Append(e)
	case fd.IsList():
		v.List().Append(f.scalar(fd))
	case fd.Message() != nil:
		if fd.Message().FullName() != "google.protobuf.Timestamp" {
			f.fill(v.Message(), depth+1)
		}
	default:
		return f.scalar(fd)
	}
	return v
}

// scalar is some value of a field, or of an element of it, that is no message.
func (f filler) scalar(fd protoreflect.FieldDescriptor) protoreflect.Value {
	if text, ok := texts[string(fd.FullName())]; ok {
		return protoreflect.ValueOfString(text)
	}
	switch fd.Kind() {
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(fd.Enum().Values().Get(1).Number())
	case protoreflect.StringKind:
		if fieldRules(fd).GetRaw() {
			return protoreflect.ValueOfString("{}")
		}
		return protoreflect.ValueOfString("x")
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(1)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte("x"))
	}
	return fd.Default()
}
