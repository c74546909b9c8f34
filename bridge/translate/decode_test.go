package translate_test

import (
	"errors"
	"math"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/testproto"
)

// record builds wire bytes by field name.
type record struct {
	field protoreflect.Name
	value any // string, []byte, message, uint64, float64
}

type message []record

func (m message) wire(t *testing.T, md protoreflect.MessageDescriptor) []byte {
	t.Helper()
	var b []byte
	for _, r := range m {
		fd := md.Fields().ByName(r.field)
		if fd == nil {
			t.Fatalf("no field %q in %q", r.field, md.Name())
		}
		n := fd.Number()
		switch v := r.value.(type) {
		case string:
			b = protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), v)
		case []byte:
			b = protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
		case message:
			b = protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v.wire(t, fd.Message()))
		case uint64:
			b = protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), v)
		case float64:
			b = protowire.AppendFixed64(protowire.AppendTag(b, n, protowire.Fixed64Type), math.Float64bits(v))
		}
	}
	return b
}

// absent keeps the many required members of All out of the expectations.
const absent = `"$absent":["requiredString","nullableString","flatNullable","requiredInt","requiredBool","requiredDouble","nullableColor","requiredAt","requiredStrings","nullableStrings","colorMap","requiredAny"]`

func TestAppendJSON(t *testing.T) {
	t.Parallel()
	hush := record{"json_extra", "{" + absent + "}"}
	tests := []struct {
		name    string
		message protoreflect.Name
		in      message
		want    string
	}{
		{"required members of an empty message", "All", nil,
			`{"requiredString":"","nullableString":null,"flatNullable":null,"requiredInt":0,"requiredBool":false,"requiredDouble":0,"nullableColor":null,"requiredAt":null,"requiredStrings":[],"nullableStrings":[],"colorMap":{},"requiredAny":null}`},
		{"consts", "Config", message{{"count", uint64(3)}}, `{"kind":"config","version":2,"on":true,"count":3}`},
		{"absent const", "Config", message{{"json_extra", `{"$absent":["on"]}`}}, `{"kind":"config","version":2,"count":0}`},
		{"const overridden", "Config", message{{"json_extra", `{"kind":"x"}`}}, `{"kind":"x","version":2,"on":true,"count":0}`},
		{"field overridden", "Config", message{{"count", uint64(3)}, {"name", "n"}, {"json_extra", `{"count":"?","other":[1]}`}},
			`{"kind":"config","version":2,"on":true,"name":"n","count":"?","other":[1]}`},
		{"absent, but set", "Config", message{{"count", uint64(3)}, {"json_extra", `{"$absent":["count"]}`}}, `{"kind":"config","version":2,"on":true,"count":3}`},
		{"whole value", "Config", message{{"count", uint64(3)}, {"json_extra", `{"$value": [1] }`}}, `[1]`},
		{"empty json_extra", "Leaf", message{{"json_extra", ``}}, `{"name":""}`},
		{"json_extra twice", "Leaf", message{{"json_extra", `{"a":1}`}, {"json_extra", `{"b":1}`}}, `{"b":1,"name":""}`},
		{"repeated member in json_extra", "Leaf", message{{"json_extra", `{"a":1,"b":2,"\u0061":3}`}}, `{"b":2,"a":3,"name":""}`},
		{"repeated declared member in json_extra", "Leaf", message{{"json_extra", `{"name":1,"name":2}`}}, `{"name":2}`},
		{"escapes", "Leaf", message{{"name", "\"\\\n\r\t\b\f\x01\x7f<é\u2028"}}, `{"name":"\"\\\n\r\t\b\f\u0001` + "\x7f<é\u2028" + `"}`},

		{"scalar twice", "Leaf", message{{"name", "a"}, {"size", uint64(1)}, {"name", "b"}}, `{"name":"b","size":1}`},
		{"message twice", "All", message{{"leaf", message{{"name", "a"}, {"size", uint64(1)}}}, hush, {"leaf", message{{"name", "b"}}}}, `{"leaf":{"name":"b","size":1}}`},
		{"list in two places", "All", message{{"strings", "a"}, hush, {"strings", "b"}}, `{"strings":["a","b"]}`},
		{"list, packed and not", "All", message{{"ints", []byte{1, 2}}, {"ints", uint64(3)}, hush, {"ints", []byte{4}}}, `{"ints":[1,2,3,4]}`},
		{"empty packed list", "All", message{{"ints", []byte{}}, hush}, `{}`},
		{"zero of a field without presence", "All", message{{"flat_optional", ""}, hush}, `{}`},
		{"unspecified enum", "All", message{{"color", uint64(0)}, hush}, `{}`},
		{"map key twice", "All", message{{"string_map", []byte("\x0a\x01k\x12\x01a")}, {"string_map", []byte("\x0a\x01k\x12\x01b")}, hush}, `{"stringMap":{"k":"b"}}`},
		{"map entry without parts", "All", message{{"int_map", []byte{}}, hush}, `{"intMap":{"":0}}`},
		{"JSON text is trimmed", "All", message{{"anything_json", " { \"a\" : 1 }\n"}, hush}, `{"anything":{ "a" : 1 }}`},
		{"large and small doubles", "All", message{{"optional_double", 1e300}, {"required_double", math.SmallestNonzeroFloat64}, hush}, `{"optionalDouble":1e+300,"requiredDouble":5e-324}`},

		{"union, last case wins", "Choice", message{{"red", message{}}, {"yes", message{{"why", "w"}}}}, `{"kind":true,"why":"w"}`},
		{"union, one case in parts", "Server", message{{"stdio", message{{"command", "c"}}}, {"stdio", message{{"args", "a"}}}}, `{"command":"c","args":["a"]}`},
		{"union, unrecognized wins", "Choice", message{{"red", message{}}, {"unrecognized", `"x"`}}, `"x"`},
		{"event without a type", "Event", message{{"idle", message{}}, {"json_extra", `{"$absent":["id","timestamp","parentId"]}`}}, `{"data":{},"type":"session.idle"}`},
		{"event, payload replaced", "Event", message{{"type", "a"}, {"idle", message{}}, {"unrecognized", `1`}, {"json_extra", `{"$absent":["id","timestamp","parentId"]}`}}, `{"type":"a","data":1}`},
		{"empty list", "Items", nil, `[]`},
		{"empty map", "Entries", nil, `{}`},
		{"unset value", "Truth", nil, `false`},
		{"unset nullable value", "MaybeTruth", nil, `null`},
		{"value twice", "MaybeTruth", message{{"value", uint64(1)}, {"value", uint64(0)}}, `false`},
		{"nothing", "Nothing", nil, `null`},
		{"nothing, but something", "Nothing", message{{"unrecognized", `{}`}}, `{}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			md := testproto.Message(tt.message)
			got, err := table(t, md).AppendJSON([]byte("x"), tt.in.wire(t, md), translate.JSONOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got = got[1:]; canonical(t, got) != canonical(t, []byte(tt.want)) {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestAppendJSONErrors(t *testing.T) {
	t.Parallel()
	strict := translate.JSONOptions{RejectDeclaredExtra: true, ForbidExtra: []string{"sessionId"}}
	open := translate.JSONOptions{}
	tests := []struct {
		name    string
		message protoreflect.Name
		in      message
		options translate.JSONOptions
		kind    translate.Kind // 0: no error
		path    string
		detail  string
	}{
		{"unknown enum number", "All", message{{"leaf", message{}}, {"color", uint64(3)}}, open, translate.KindEnum, "color", "3"},
		{"enum number out of range", "All", message{{"color", uint64(99)}}, open, translate.KindEnum, "color", "99"},
		{"negative enum number", "All", message{{"color", uint64(math.MaxUint64)}}, open, translate.KindEnum, "color", "-1"},
		{"unspecified enum in a list", "All", message{{"colors", []byte{1, 0}}}, open, translate.KindEnum, "colors[1]", "0"},
		{"enum in a map", "All", message{{"color_map", []byte("\x0a\x01k\x10\x63")}}, open, translate.KindEnum, `color_map["k"]`, "99"},
		{"NaN", "All", message{{"required_double", math.NaN()}}, open, translate.KindRange, "required_double", ""},
		{"infinity", "All", message{{"doubles", []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x7f}}}, open, translate.KindRange, "doubles[0]", ""},
		{"time out of range", "All", message{{"at", []byte{8, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}}}, open, translate.KindRange, "at", ""},
		{"negative nanoseconds", "All", message{{"at", []byte{16, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}}}, open, translate.KindRange, "at", ""},
		{"no case", "All", message{{"choices", message{}}}, open, translate.KindUnset, "choices[0]", ""},
		{"not UTF-8", "All", message{{"leaf", message{{"name", "a\xff"}}}}, open, translate.KindUTF8, "leaf.name", ""},
		{"map key not UTF-8", "All", message{{"string_map", []byte("\x0a\x01\xff")}}, open, translate.KindUTF8, "string_map", ""},
		{"JSON text that would escape", "All", message{{"anything_json", `1},"sessionId":"x"`}}, open, translate.KindText, "anything_json", ""},
		{"empty JSON text", "All", message{{"anything_json", ``}}, open, translate.KindText, "anything_json", ""},
		{"JSON text not UTF-8", "All", message{{"anything_json", "\"\xff\""}}, open, translate.KindUTF8, "anything_json", ""},
		{"json_extra that would escape", "Leaf", message{{"json_extra", `{},"a":{}`}}, open, translate.KindText, "json_extra", ""},
		{"json_extra no object", "Leaf", message{{"json_extra", `[1]`}}, open, translate.KindText, "json_extra", ""},
		{"absent no list", "Leaf", message{{"json_extra", `{"$absent":"name"}`}}, open, translate.KindText, "json_extra", ""},

		{"declared member in json_extra", "Leaf", message{{"json_extra", `{"name":"x"}`}}, strict, translate.KindDeclaredExtra, "json_extra", "name"},
		{"the same, escaped", "Leaf", message{{"json_extra", `{"n\u0061me":"x"}`}}, strict, translate.KindDeclaredExtra, "json_extra", "name"},
		{"the same, deeper", "All", message{{"leaf", message{{"json_extra", `{"size":1}`}}}}, strict, translate.KindDeclaredExtra, "leaf.json_extra", "size"},
		{"the same of a const", "Config", message{{"json_extra", `{"kind":1}`}}, strict, translate.KindDeclaredExtra, "json_extra", "kind"},
		{"reserved name", "Leaf", message{{"json_extra", `{"$value":1}`}}, strict, translate.KindDeclaredExtra, "json_extra", "$value"},
		{"other reserved name", "Leaf", message{{"json_extra", `{"$absent":["name"]}`}}, strict, translate.KindDeclaredExtra, "json_extra", "$absent"},
		{"many members in json_extra", "All", message{{"leaf", message{{"json_extra", `{"a":1,"b":2,"c":3}`}}}}, translate.JSONOptions{MaxExtraMembers: 2}, translate.KindSize, "leaf.json_extra", ""},
		{"as many as may be", "Leaf", message{{"json_extra", `{"a":1,"b":2}`}}, translate.JSONOptions{MaxExtraMembers: 2}, 0, "", ""},
		{"null of a nullable member", "All", message{{"json_extra", `{"tristateString":null}`}}, strict, 0, "", ""},
		{"null of a nullable member that is set", "All", message{{"tristate_string", "x"}, {"json_extra", `{"tristateString":null}`}}, strict, translate.KindDeclaredExtra, "json_extra", "tristateString"},
		{"null of another member", "All", message{{"json_extra", `{"optionalInt":null}`}}, strict, translate.KindDeclaredExtra, "json_extra", "optionalInt"},
		{"null of a nullable list", "All", message{{"json_extra", `{"nullableStrings":null}`}}, strict, 0, "", ""},
		{"empty list", "All", message{{"json_extra", `{"strings": [ ] }`}}, strict, 0, "", ""},
		{"empty list, deeper", "All", message{{"child", message{{"json_extra", `{"strings":[]}`}}}}, strict, 0, "", ""},
		{"empty list that is set", "All", message{{"strings", "x"}, {"json_extra", `{"strings":[]}`}}, strict, translate.KindDeclaredExtra, "json_extra", "strings"},
		{"list that is not empty", "All", message{{"json_extra", `{"strings":["x"]}`}}, strict, translate.KindDeclaredExtra, "json_extra", "strings"},
		{"empty list for a map", "All", message{{"json_extra", `{"stringMap":[]}`}}, strict, translate.KindDeclaredExtra, "json_extra", "stringMap"},
		{"empty text for an enum", "All", message{{"json_extra", `{"color":""}`}}, strict, translate.KindDeclaredExtra, "json_extra", "color"},
		{"empty object for a union of objects", "All", message{{"json_extra", `{"server":{}}`}}, strict, translate.KindDeclaredExtra, "json_extra", "server"},
		{"empty list, then a list", "All", message{{"json_extra", `{"strings":[],"strings":["x"]}`}}, strict, translate.KindDeclaredExtra, "json_extra", "strings"},
		{"forbidden member that is empty", "Leaf", message{{"json_extra", `{"sessionId":""}`}}, strict, translate.KindForbiddenExtra, "json_extra", "sessionId"},
		{"undeclared member", "Leaf", message{{"json_extra", `{"x":1}`}}, strict, 0, "", ""},
		{"forbidden member", "Leaf", message{{"json_extra", `{"sessionId":1}`}}, strict, translate.KindForbiddenExtra, "json_extra", "sessionId"},
		{"forbidden member, escaped", "Leaf", message{{"json_extra", `{"session\u0049d":1}`}}, strict, translate.KindForbiddenExtra, "json_extra", "sessionId"},
		{"forbidden member in the whole value", "Leaf", message{{"json_extra", `{"$value":{"sessionId":1}}`}}, translate.JSONOptions{ForbidExtra: []string{"sessionId"}}, translate.KindForbiddenExtra, "json_extra", "sessionId"},
		{"forbidden member said to be absent", "Leaf", message{{"json_extra", `{"$absent":["sessionId"]}`}}, translate.JSONOptions{ForbidExtra: []string{"sessionId"}}, translate.KindForbiddenExtra, "json_extra", "sessionId"},
		{"forbidden member, deeper", "All", message{{"leaf", message{{"json_extra", `{"sessionId":1}`}}}}, strict, 0, "", ""},
		{"forbidden member in a union", "Choice", message{{"red", message{{"json_extra", `{"sessionId":1}`}}}}, strict, translate.KindForbiddenExtra, "red.json_extra", "sessionId"},
		{"forbidden member, unrecognized", "Choice", message{{"unrecognized", `{"sessionId":1}`}}, strict, translate.KindForbiddenExtra, "unrecognized", "sessionId"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			md := testproto.Message(tt.message)
			out, err := table(t, md).AppendJSON([]byte("kept"), tt.in.wire(t, md), tt.options)
			if tt.kind == 0 {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			var e *translate.Error
			if !errors.As(err, &e) {
				t.Fatalf("error = %v (%s)", err, out)
			}
			if e.Kind != tt.kind || e.Path != tt.path || e.Detail != tt.detail {
				t.Errorf("error = %v (path %q, detail %q), want %v", e, e.Path, e.Detail, tt.kind)
			}
			if string(out) != "kept" {
				t.Errorf("dst became %q", out)
			}
		})
	}
}

// TestOutputLimit feeds what makes much output from little input.
func TestOutputLimit(t *testing.T) {
	t.Parallel()
	set := translate.NewSet(translate.WithLimits(translate.Limits{MaxOutput: 10_000}))
	md := testproto.Message("All")
	table, err := set.Table(md)
	if err != nil {
		t.Fatal(err)
	}
	child := message{{"color", uint64(1)}}
	for range 100 {
		child = message{{"child", child}}
	}
	for name, m := range map[string]message{
		"packed enums": {{"colors", slices.Repeat([]byte{4}, 2000)}},
		"messages":     child,
	} {
		if out, err := table.AppendJSON(nil, m.wire(t, md), translate.JSONOptions{}); !errors.Is(err, &translate.Error{Kind: translate.KindSize}) {
			t.Errorf("%s: %d bytes, error = %v", name, len(out), err)
		}
	}
}

func TestUnknownFields(t *testing.T) {
	t.Parallel()
	known := message{{"name", "n"}}.wire(t, testproto.Message("Leaf"))
	unknown := map[string][]byte{
		"varint":       protowire.AppendVarint(protowire.AppendTag(nil, 77, protowire.VarintType), 5),
		"fixed32":      protowire.AppendFixed32(protowire.AppendTag(nil, 77, protowire.Fixed32Type), 5),
		"large number": protowire.AppendFixed64(protowire.AppendTag(nil, 1<<29-1, protowire.Fixed64Type), 5),
		"other wire type": protowire.AppendVarint(
			protowire.AppendTag(nil, testproto.Message("Leaf").Fields().ByName("name").Number(), protowire.VarintType), 5),
		"group": slices.Concat(protowire.AppendTag(nil, 77, protowire.StartGroupType), known,
			protowire.AppendTag(nil, 78, protowire.StartGroupType), protowire.AppendTag(nil, 78, protowire.EndGroupType),
			protowire.AppendTag(nil, 77, protowire.EndGroupType)),
	}
	leaf := table(t, testproto.Message("Leaf"))
	for name, b := range unknown {
		got, err := leaf.AppendJSON(nil, slices.Concat(b, known, b), translate.JSONOptions{})
		if err != nil || string(got) != `{"name":"n"}` {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

func TestMalformedWire(t *testing.T) {
	t.Parallel()
	leaf := table(t, testproto.Message("Leaf"))
	for _, b := range [][]byte{
		{0x0a}, {0x0a, 5, 'a'}, {0x10}, {0x10, 0x80}, {0}, {7}, {0x0c}, {0x0b}, {0x0b, 0x14}, {0x0d, 1}, {0x09, 1, 2},
		slices.Repeat([]byte{0xff}, 11), {0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1},
	} {
		if out, err := leaf.AppendJSON(nil, b, translate.JSONOptions{}); !errors.Is(err, &translate.Error{Kind: translate.KindWire}) {
			t.Errorf("AppendJSON(%x) = %q, %v", b, out, err)
		}
	}
}
