package translate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/testproto"
)

// get follows a path of proto fields and returns the value as text, "-" when a
// field on the way is not set.
func get(m protoreflect.Message, path string) string {
	name, rest, _ := strings.Cut(path, ".")
	fd := m.Descriptor().Fields().ByName(protoreflect.Name(name))
	switch {
	case fd == nil:
		return "no such field"
	case fd.HasPresence() && !m.Has(fd):
		return "-"
	case rest != "":
		return get(m.Get(fd).Message(), rest)
	case fd.IsMap():
		var parts []string
		m.Get(fd).Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			parts = append(parts, fmt.Sprintf("%v:%v", k, v))
			return true
		})
		return "{" + strings.Join(parts, ",") + "}"
	case fd.IsList():
		var parts []string
		for i := range m.Get(fd).List().Len() {
			parts = append(parts, m.Get(fd).List().Get(i).String())
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	return m.Get(fd).String()
}

const (
	exact = translate.Exact
	tidy  = translate.Tidy
)

// rules say what becomes of a member: the field it sets and what json_extra holds.
var rules = []struct {
	name     string
	message  protoreflect.Name
	json     string
	fidelity translate.Fidelity
	path     string
	want     string
	extra    string
}{
	{"string", "All", `{"requiredString":"a\n\u00e9\ud83d\ude00"}`, exact, "required_string", "a\né😀", ``},
	{"explicit zero of an optional scalar", "All", `{"optionalInt":0}`, exact, "optional_int", "0", ``},
	{"absent optional scalar", "All", `{}`, exact, "optional_int", "-", ``},
	{"null of an optional scalar, exact", "All", `{"optionalInt":null}`, exact, "optional_int", "-",
		`"optionalInt":null`},
	{"null of an optional scalar, tidy", "All", `{"optionalInt":null}`, tidy, "optional_int", "-", ``},
	{"null of a tri-state, tidy", "All", `{"tristateString":null}`, tidy, "tristate_string", "-",
		`"tristateString":null`},
	{"null of a required nullable", "All", `{"nullableString":null}`, exact, "nullable_string", "-", ``},
	{"empty required nullable", "All", `{"nullableString":""}`, exact, "nullable_string", "", ``},
	{"null of a required member", "All", `{"requiredInt":null}`, tidy, "required_int", "0", `"requiredInt":null`},
	{"zero without presence, unset is null", "All", `{"flatNullable":""}`, exact, "flat_nullable", "",
		`"flatNullable":""`},
	{"null without presence", "All", `{"flatNullable":null}`, exact, "flat_nullable", "", ``},
	{"zero without presence, unset is absent", "All", `{"flatOptional":""}`, exact, "flat_optional", "",
		`"flatOptional":""`},

	{"integer with a fraction of zero", "All", `{"requiredInt":1795213244414.0}`, exact, "required_int",
		"1795213244414", ``},
	{"integer with an exponent", "All", `{"requiredInt":-12e3}`, exact, "required_int", "-12000", ``},
	{"largest integer", "All", `{"requiredInt":9223372036854775807}`, exact, "required_int", "9223372036854775807", ``},
	{"smallest integer", "All", `{"requiredInt":-9223372036854775808}`, exact, "required_int", "-9223372036854775808",
		``},
	{"beyond int64", "All", `{"requiredInt":9223372036854775808}`, exact, "required_int", "0",
		`"requiredInt":9223372036854775808`},
	{"fraction where an integer is due", "All", `{"requiredInt":1.5}`, exact, "required_int", "0", `"requiredInt":1.5`},
	{"double", "All", `{"requiredDouble":0.1}`, exact, "required_double", "0.1", ``},
	{"double in another spelling", "All", `{"requiredDouble":1.50e1}`, exact, "required_double", "15", ``},
	{"more digits than a double has", "All", `{"requiredDouble":0.1000000000000000055}`, exact, "required_double", "0",
		`"requiredDouble":0.1000000000000000055`},
	{"beyond double", "All", `{"requiredDouble":1e400}`, exact, "required_double", "0", `"requiredDouble":1e400`},
	{"string where a number is due", "All", `{"requiredDouble":"1"}`, exact, "required_double", "0",
		`"requiredDouble":"1"`},

	{"enum", "All", `{"color":"needs-auth"}`, exact, "color", "2", ``},
	{"enum with an escape", "All", `{"color":"needs\u002dauth"}`, exact, "color", "2", ``},
	{"unknown enum value", "All", `{"color":"pink"}`, exact, "color", "0", `"color":"pink"`},
	{"unknown enum value in a list", "All", `{"colors":["red","pink"]}`, exact, "colors", "[]",
		`"colors":["red","pink"]`},
	{"unknown enum value in a map", "All", `{"colorMap":{"a":"red","b":"pink"}}`, exact, "color_map", "{}",
		`"colorMap":{"a":"red","b":"pink"}`},

	{"time of milliseconds", "All", `{"at":"2026-01-02T03:04:05.678Z"}`, exact, "at.seconds", "1767323045", ``},
	{"time of nanoseconds", "All", `{"at":"2026-01-02T03:04:05.26444077Z"}`, exact, "at.nanos", "264440770", ``},
	{"time without a fraction", "All", `{"at":"2026-04-30T00:00:00Z"}`, exact, "at", "-",
		`"at":"2026-04-30T00:00:00Z"`},
	{"time with zeros too many", "All", `{"at":"2026-04-30T00:00:00.123400Z"}`, exact, "at", "-",
		`"at":"2026-04-30T00:00:00.123400Z"`},
	{"time of another zone", "All", `{"at":"2026-04-30T00:00:00.000+02:00"}`, exact, "at", "-",
		`"at":"2026-04-30T00:00:00.000+02:00"`},
	{"a day there is not", "All", `{"at":"2026-02-29T00:00:00.000Z"}`, exact, "at", "-",
		`"at":"2026-02-29T00:00:00.000Z"`},

	{"base64", "All", `{"dataBytes":"AQID"}`, exact, "data_bytes", "[1 2 3]", ``},
	{"base64 with stray bits", "All", `{"dataBytes":"AR=="}`, exact, "data_bytes", "-", `"dataBytes":"AR=="`},
	{"base64 without padding", "All", `{"dataBytes":"AQ"}`, exact, "data_bytes", "-", `"dataBytes":"AQ"`},
	{"base64 with a line break", "All", `{"dataBytes":"AQ\nID"}`, exact, "data_bytes", "-", `"dataBytes":"AQ\nID"`},

	{"lone surrogate", "All", `{"requiredString":"a\ud800b"}`, exact, "required_string", "",
		`"requiredString":"a\ud800b"`},
	{"lone surrogate in a list", "All", `{"strings":["ok","\udc00"]}`, exact, "strings", "[]",
		`"strings":["ok","\udc00"]`},
	{"lone surrogate in a name", "All", `{"\ud800":1}`, exact, "strings", "[]", `"\ud800":1`},

	{"empty optional list, exact", "All", `{"strings":[]}`, exact, "strings", "[]", `"strings":[]`},
	{"empty optional list, tidy", "All", `{"strings":[]}`, tidy, "strings", "[]", ``},
	{"empty required list", "All", `{"requiredStrings":[]}`, exact, "required_strings", "[]", ``},
	{"null of a required nullable list", "All", `{"nullableStrings":null}`, tidy, "nullable_strings", "[]",
		`"nullableStrings":null`},
	{"empty optional map, exact", "All", `{"stringMap":{}}`, exact, "string_map", "{}", `"stringMap":{}`},
	{"null in a list", "All", `{"leaves":[{"name":"a"},null]}`, exact, "leaves", "[]", `"leaves":[{"name":"a"},null]`},
	{"packed list", "All", `{"ints":[1,300,-1]}`, exact, "ints", "[1,300,-1]", ``},
	{"empty wrapper", "All", `{"tools":[]}`, tidy, "tools.items", "[]", ``},
	{"null of a nullable wrapper", "All", `{"tools":null}`, tidy, "tools", "-", `"tools":null`},
	{"wrapper with a misfit", "All", `{"tools":["a",1]}`, tidy, "tools", "-", `"tools":["a",1]`},

	{"free JSON keeps its bytes", "All", `{"anything":{ "b":1.50, "a":[ "\ud800" ] }}`, exact, "anything_json",
		`{ "b":1.50, "a":[ "\ud800" ] }`, ``},
	{"free JSON may be null", "All", `{"anything":null}`, tidy, "anything_json", `null`, ``},
	{"list of free JSON", "All", `{"anyList":[null,{"a":1}]}`, exact, "any_list_json", `[null,{"a":1}]`, ``},

	{"object where none is due", "All", `{"requiredString":{"a":1}}`, exact, "required_string", "",
		`"requiredString":{"a":1}`},
	{"no object where one is due", "All", `{"leaf":[1]}`, exact, "leaf", "-", `"leaf":[1]`},
	{"unknown member, verbatim", "All", `{"other" : [ 1, 2 ]}`, exact, "leaf", "-", `"other" : [ 1, 2 ]`},
	{"renamed members", "All", `{"_meta":"x"}`, exact, "meta", "x", ``},
	{"escaped name", "All", `{"\u005fmeta":"x"}`, exact, "meta", "x", ``},
	{"unknown member inside", "All", `{"leaf":{"name":"a","b":2}}`, exact, "leaf.json_extra", `{"b":2}`, ``},
	{"missing member inside", "All", `{"leaf":{}}`, exact, "leaf.json_extra", `{"$absent":["name"]}`, ``},
	{"reserved name inside", "All", `{"leaf":{"$value":1,"name":"a"}}`, exact, "leaf.json_extra",
		`{"$value":{"$value":1,"name":"a"}}`, ``},
	{"a member without room for a misfit", "All", `{"child":{"leaf":{"name":7}}}`, exact, "child.leaf.json_extra",
		`{"name":7}`, ``},

	{"repeated scalar", "All", `{"requiredInt":1,"x":0,"requiredInt":2}`, exact, "required_int", "2", `"x":0`},
	{"repeated list", "All", `{"strings":["a"],"strings":["b"]}`, exact, "strings", "[b]", ``},
	{"repeated, the last is a misfit", "All", `{"requiredInt":1,"requiredInt":"2"}`, exact, "required_int", "0",
		`"requiredInt":"2"`},
	{"repeated, the first is a misfit", "All", `{"requiredInt":"1","requiredInt":2}`, exact, "required_int", "2", ``},
	{"repeated map key, the first is a misfit", "All", `{"stringMap":{"a":1,"a":"x"}}`, exact, "string_map", "{a:x}", ``},
	{"repeated map key, the last is a misfit", "All", `{"stringMap":{"a":"x","a":1}}`, exact, "string_map", "{}",
		`"stringMap":{"a":1}`},
	{"repeated with an escape", "All", `{"requiredInt":1,"\u0072equiredInt":2}`, exact, "required_int", "2", ``},

	{"union by string", "All", `{"choices":[{"kind":"red","depth":1}]}`, exact, "server", "-", ``},
	{"union by form", "All", `{"server":{"url":"u"}}`, exact, "server.http.url", "u", ``},
	{"union by form, with a common member", "All", `{"server":{"type":"x","command":"c"}}`, exact,
		"server.stdio.command", "c", ``},
	{"union by const", "All", `{"server":{"type":"other"}}`, exact, "server.other.args", "-", ``},
	{"union of kinds: narrow string", "All", `{"mixed":"red"}`, exact, "mixed.color", "1", ``},
	{"union of kinds: any string", "All", `{"mixed":"reddish"}`, exact, "mixed.string_value", "reddish", ``},
	{"union of kinds: integer", "All", `{"mixed":3}`, exact, "mixed.int_value", "3", ``},
	{"union of kinds: double", "All", `{"mixed":3.5}`, exact, "mixed.double_value", "3.5", ``},
	{"union of kinds: list", "All", `{"mixed":["a"]}`, exact, "mixed.list.items", "[a]", ``},
	{"union of kinds: nothing fits", "All", `{"mixed":1e400}`, exact, "mixed.unrecognized", "1e400", ``},
}

// TestRules checks each rule. All without its required members would note them as
// absent, which is cut from the expectation.
func TestRules(t *testing.T) {
	t.Parallel()
	for _, tt := range rules {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := encode(t, tt.message, tt.json, tt.fidelity)
			if got := get(m, tt.path); got != tt.want {
				t.Errorf("%s = %q, want %q", tt.path, got, tt.want)
			}
			extra, _, found := strings.Cut(strings.TrimPrefix(get(m, "json_extra"), "{"), `"$absent":[`)
			if extra = strings.TrimSuffix(extra, ","); !found || extra != tt.extra {
				t.Errorf("json_extra = %q, want %q", extra, tt.extra)
			}
			checkBoth(t, testproto.Message(tt.message), []byte(tt.json), tt.fidelity)
		})
	}
}

func encode(t *testing.T, name protoreflect.Name, json string, f translate.Fidelity) *dynamicpb.Message {
	t.Helper()
	md := testproto.Message(name)
	wire, err := table(t, md).AppendWire(nil, []byte(json), f)
	if err != nil {
		t.Fatalf("AppendWire(%q): %v", json, err)
	}
	m := dynamicpb.NewMessage(md)
	if err := proto.Unmarshal(wire, m); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestShapes says the same of whole messages, by their text form.
func TestShapes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		message protoreflect.Name
		json    string
		paths   map[string]string
	}{
		{"consts", "Config", `{"kind":"config","version":2.0,"on":true,"count":1}`,
			map[string]string{"count": "1", "json_extra": ""}},
		{"consts that differ", "Config", `{"kind":"config","version":3,"count":1}`,
			map[string]string{"json_extra": `{"version":3,"$absent":["on"]}`}},
		{"no object at the top", "Config", `[1]`, map[string]string{"json_extra": `{"$value":[1]}`}},
		{"null at the top", "Config", ` null `, map[string]string{"json_extra": `{"$value":null}`}},

		{"discriminator", "Choice", `{"depth":1,"kind":"red"}`,
			map[string]string{"red.depth": "1", "red.json_extra": ""}},
		{"second tag of a case", "Choice", `{"kind":"azure"}`,
			map[string]string{"blue.json_extra": `{"kind":"azure"}`}},
		{"boolean discriminator", "Choice", `{"kind":true,"why":"w"}`, map[string]string{"yes.why": "w"}},
		{"number discriminator", "Choice", `{"kind":1.0,"why":"w"}`, map[string]string{"one.why": "w"}},
		{"unknown discriminator", "Choice", `{"kind":"green"}`, map[string]string{"unrecognized": `{"kind":"green"}`}},
		{"no discriminator", "Choice", `{}`, map[string]string{"unrecognized": `{}`}},
		{"no object", "Choice", `7`, map[string]string{"unrecognized": `7`}},
		{"discriminator twice", "Choice", `{"kind":"blue","kind":"red"}`, map[string]string{"red.json_extra": ""}},

		{"repeated without room for a misfit, the first is one", "Strict",
			`{"name":"a","inner":{"name":"a","inner":{"name":1}},"inner":{"name":"b"}}`, map[string]string{"inner.name": "b"}},

		{"event", "Event",
			`{"type":"assistant.message_delta","data":{"messageId":"m","deltaContent":"d"},"id":"i","timestamp":"2026-01-02T03:04:05.678Z","parentId":null}`,
			map[string]string{"type": "assistant.message_delta", "delta.delta_content": "d", "id": "i",
				"parent_id": "-", "json_extra": ""}},
		{"event, payload first", "Event",
			`{"data":{"messageId":"m","deltaContent":"d"},"id":"i","timestamp":"2026-01-02T03:04:05.678Z","parentId":"p","type":"assistant.message_delta"}`,
			map[string]string{"delta.delta_content": "d", "parent_id": "p", "json_extra": ""}},
		{"event, unknown type", "Event",
			`{"type":"new","data":{"a":1},"id":"i","timestamp":"2026-01-02T03:04:05.678Z","parentId":null}`,
			map[string]string{"type": "new", "unrecognized": `{"a":1}`, "json_extra": ""}},
		{"event, payload is no object", "Event",
			`{"type":"session.idle","data":[1],"id":"i","timestamp":"2026-01-02T03:04:05.678Z","parentId":null}`,
			map[string]string{"type": "session.idle", "unrecognized": `[1]`, "json_extra": ""}},
		{"event, type changes", "Event",
			`{"type":"assistant.message","data":{"messageId":"m","deltaContent":"d"},"type":"assistant.message_delta","id":"i","timestamp":"2026-01-02T03:04:05.678Z","parentId":null}`,
			map[string]string{"delta.delta_content": "d", "message": "-"}},
		{"event, no type", "Event", `{"data":{},"id":"i","timestamp":"2026-01-02T03:04:05.678Z","parentId":null}`,
			map[string]string{"type": "", "unrecognized": `{}`, "json_extra": `{"$absent":["type"]}`}},
		{"event, type is no string", "Event",
			`{"type":5,"data":{},"id":"i","timestamp":"2026-01-02T03:04:05.678Z","parentId":null}`,
			map[string]string{"type": "", "unrecognized": `{}`, "json_extra": `{"type":5}`}},

		{"list", "Items", `[{"name":"a"},{}]`, map[string]string{"unrecognized": "-"}},
		{"list with a misfit", "Items", `[{"name":"a"},1]`,
			map[string]string{"items": "[]", "unrecognized": `[{"name":"a"},1]`}},
		{"no list", "Items", `{}`, map[string]string{"unrecognized": `{}`}},
		{"map", "Entries", `{"a":1}`, map[string]string{"entries": "{a:1}"}},
		{"map with a misfit", "Entries", `{"a":"1"}`, map[string]string{"entries": "{}", "unrecognized": `{"a":"1"}`}},
		{"value", "Truth", `false`, map[string]string{"value": "false", "unrecognized": "-"}},
		{"value that may not be null", "Truth", `null`, map[string]string{"value": "false", "unrecognized": "null"}},
		{"value that may be null", "MaybeTruth", `null`, map[string]string{"value": "-", "unrecognized": "-"}},
		{"value of another kind", "MaybeTruth", `1`, map[string]string{"value": "-", "unrecognized": "1"}},
		{"null", "Nothing", `null`, map[string]string{"unrecognized": "-"}},
		{"no null", "Nothing", `{}`, map[string]string{"unrecognized": "{}"}},
		{"any value", "AnyValue", `null`, map[string]string{"value_json": "null"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			m := encode(t, tt.message, tt.json, exact)
			for path, want := range tt.paths {
				if got := get(m, path); got != want {
					t.Errorf("%s = %q, want %q", path, got, want)
				}
			}
			checkBoth(t, testproto.Message(tt.message), []byte(tt.json), exact)
		})
	}
}

// TestNothing: if a message stands only for null, an empty object is equivalent. It is dropped unless Exact is
// set.
func TestNothing(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		json, want string
		fidelity   translate.Fidelity
	}{
		{`null`, "-", tidy},
		{`{}`, "-", tidy},
		{"{ \n}", "-", tidy},
		{`{}`, `{}`, exact},
		{`{"a":1}`, `{"a":1}`, tidy},
		{`[]`, `[]`, tidy},
	} {
		if got := get(encode(t, "Nothing", tt.json, tt.fidelity), "unrecognized"); got != tt.want {
			t.Errorf("unrecognized of %s = %q, want %q", tt.json, got, tt.want)
		}
		checkBoth(t, testproto.Message("Nothing"), []byte(tt.json), tt.fidelity)
	}
}

func TestJSONErrors(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("[", 1001) + strings.Repeat("]", 1001)
	tests := []struct {
		name    string
		message protoreflect.Name
		json    string
		kind    translate.Kind
		path    string
	}{
		{"empty", "All", ``, translate.KindSyntax, ""},
		{"cut short", "All", `{"leaf":{"name":"a`, translate.KindSyntax, "leaf.name"},
		{"trailing text", "All", `{} {}`, translate.KindSyntax, ""},
		{"trailing comma", "All", `{"strings":["a",]}`, translate.KindSyntax, ""},
		{"bad escape", "All", `{"strings":["a","\q"]}`, translate.KindSyntax, "strings[1]"},
		{"control character", "All", "{\"stringMap\":{\"k\":\"a\nb\"}}", translate.KindSyntax, `stringMap["k"]`},
		{"bad number", "All", `{"ints":[01]}`, translate.KindSyntax, ""},
		{"bad free JSON", "All", `{"anything":{"a":tru}}`, translate.KindSyntax, "anything"},
		{"not UTF-8", "All", "{\"requiredString\":\"\xff\"}", translate.KindUTF8, "requiredString"},
		{"not UTF-8 beside an escape", "All", "{\"requiredString\":\"\\n\xff\"}", translate.KindUTF8, "requiredString"},
		{"not UTF-8 in an unknown member", "All", "{\"x\":[\"\xff\"]}", translate.KindUTF8, ""},
		{"not UTF-8 in a name", "All", "{\"\xff\":1}", translate.KindUTF8, ""},
		{"too deep, free JSON", "All", `{"anything":` + deep + `}`, translate.KindDepth, "anything"},
		{"too deep, unknown", "All", `{"x":` + deep + `}`, translate.KindDepth, ""},
		{"no room for a misfit", "Strict", `{"name":"a","inner":{"name":1}}`, translate.KindMisfit, ""},
		{"repeated and malformed", "All", `{"requiredInt":1,"requiredInt":2,"x":}`, translate.KindSyntax, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			dst := []byte("kept")
			out, err := table(t, testproto.Message(tt.message)).AppendWire(dst, []byte(tt.json), exact)
			var e *translate.Error
			if !errors.As(err, &e) {
				t.Fatalf("error = %v", err)
			}
			if e.Kind != tt.kind || tt.path != "" && e.Path != tt.path {
				t.Errorf("error = %v (path %q), want %v at %q", e, e.Path, tt.kind, tt.path)
			}
			if string(out) != "kept" {
				t.Errorf("dst became %q", out)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	set := translate.NewSet(translate.WithLimits(translate.Limits{MaxDepth: 5, MaxInput: 3000, MaxOutput: 1000}))
	tests := []struct {
		name string
		json string
		kind translate.Kind
	}{
		{"input", `{"requiredString":"` + strings.Repeat("x", 3000) + `"}`, translate.KindSize},
		{"output of absences", `{"leaves":[` + strings.Repeat(`{},`, 500) + `{}]}`, translate.KindSize},
		{"depth of messages", strings.Repeat(`{"child":`, 6) + `{}` + strings.Repeat(`}`, 6), translate.KindDepth},
		{"depth of lists", `{"leaves":[{"x":[[[1]]]}]}`, translate.KindDepth},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			table, err := set.Table(testproto.Message("All"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := table.AppendWire(nil, []byte(tt.json), exact); !errors.Is(err,
				&translate.Error{Kind: tt.kind}) {
				t.Errorf("error = %v, want %v", err, tt.kind)
			}
		})
	}
}
