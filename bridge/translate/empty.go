package translate

import (
	"bytes"

	jsonv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/json/v1"
)

// isEmpty reports whether a well-formed JSON value is an explicit empty value of the field's kind. An unset
// field means that the member is absent, which is not the same.
func (f *field) isEmpty(value []byte) bool {
	kind := kindOf(value[0])
	switch kind {
	case jsonNull:
		return f.takesNull
	case jsonArray, jsonObject:
		// Whatever stands between the brackets is space.
		if len(bytes.TrimLeft(value[1:], " \t\r\n")) > 1 {
			return false
		}
	default:
		if string(value) != `""` {
			return false
		}
	}
	return f.emptyKinds()&(1<<kind) != 0
}

// emptyKinds tells which kinds of JSON value have an empty value that fits the field, as a bit per
// jsonKind. An enum, a time and a union of objects have no empty value.
func (f *field) emptyKinds() (kinds uint8) {
	switch {
	case f.card == list:
		return 1 << jsonArray
	case f.card == dictionary:
		return 1 << jsonObject
	}
	switch f.kind {
	case kindString, kindBytes:
		return 1 << jsonString
	case kindText:
		return 1<<jsonArray | 1<<jsonObject | 1<<jsonString
	case kindMessage:
		switch f.message.shape {
		case jsonv1.Shape_SHAPE_LIST:
			return 1 << jsonArray
		case jsonv1.Shape_SHAPE_UNION:
			for _, c := range f.message.cases {
				if c.kind != kindMessage || !c.message.isObject() {
					kinds |= c.emptyKinds()
				}
			}
			return kinds
		case jsonv1.Shape_SHAPE_VALUE, jsonv1.Shape_SHAPE_NULL:
			return 0
		}
		return 1 << jsonObject
	}
	return 0
}
