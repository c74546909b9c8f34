package surface

import (
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"

	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// slot is where a JSON value goes: a message, or a field or an element of one.
type slot struct {
	message protoreflect.MessageDescriptor
	field   protoreflect.FieldDescriptor
	element bool // of a repeated field or a map
}

func (s slot) String() string {
	switch {
	case s.field != nil:
		return fmt.Sprintf("%s (%s, element %v)", s.field.FullName(), s.field.Kind(), s.element)
	case s.message != nil:
		return string(s.message.FullName())
	}
	return "nothing"
}

// raw reports JSON text.
func (s slot) raw() bool { return s.field != nil && fieldRules(s.field).GetRaw() }

// inner is the message of a slot, if it is one.
func (s slot) inner() protoreflect.MessageDescriptor {
	switch {
	case s.field == nil:
		return s.message
	case s.field.IsMap() && s.element:
		return s.field.MapValue().Message()
	case s.field.IsMap(), s.field.IsList() && !s.element:
		return nil
	}
	return s.field.Message()
}

// scalar is the descriptor of a slot that holds one value.
func (s slot) scalar() protoreflect.FieldDescriptor {
	switch {
	case s.field == nil, s.field.IsList() && !s.element, s.field.IsMap() && !s.element:
		return nil
	case s.field.IsMap():
		return s.field.MapValue()
	}
	return s.field
}

// holdsNull reports a slot that null may stand in: any field, unset for it, and messages that are not an object.
func (s slot) holdsNull() bool {
	if s.field != nil {
		return true
	}
	switch messageRules(s.message).GetShape() {
	case jsonv1.Shape_SHAPE_VALUE, jsonv1.Shape_SHAPE_NULL:
		return true
	}
	return false
}
