package schemagen

import (
	"slices"
	"strings"
	"testing"
)

func TestPlanFields(t *testing.T) {
	t.Parallel()
	pl := planOf(t, NewLedger(), modelOf(t, "1", `"E":{"enum":["a","b"]},"One":{"enum":["only"]}`, method("go", `
		"text":{"type":"string"}, "n":{"type":"integer"}, "x":{"type":"number"}, "when":{"type":"string","format":"date-time"},
		"data":{"type":"string","contentEncoding":"base64"}, "e":{"$ref":"#/definitions/E"}, "args":{"x-opaque-json":true},
		"blobs":{"type":"array","items":{}}, "tags":{"type":"array","items":{"type":"string"}},
		"byName":{"type":"object","additionalProperties":{"type":"string"}},
		"headers":{"type":"object","additionalProperties":{"type":"array","items":{"type":"string"}}},
		"inner":{"type":"object","properties":{"a":{"type":"string"}}}, "maybe":{"const":"x"},
		"handle":{"x-opaque-in-process":true}, "_meta":{"type":"string"}, "gitHubToken":{"type":"string"},
		"aB":{"type":"string"}, "a_b":{"type":"string"}`, `{"type":"null"}`)))
	m := pl.Messages["SessionServiceGoRequest"]
	for name, want := range map[string]Field{
		"text":         {Type: "string", Optional: true},
		"n":            {Type: "int64", Optional: true},
		"x":            {Type: "double", Optional: true},
		"when":         {Type: timestampType},
		"data":         {Type: "bytes", Optional: true},
		"e":            {Type: "E"},
		"args_json":    {Type: "string", Optional: true, Raw: true, JSON: "args"},
		"blobs_json":   {Type: "string", Optional: true, Raw: true, JSON: "blobs"},
		"tags":         {Type: "string", Repeated: true},
		"by_name":      {Type: "string", Map: true},
		"headers":      {Type: "StringList", Map: true, Secret: true},
		"inner":        {Type: "SessionServiceGoRequestInner"},
		"maybe":        {Type: "SessionServiceGoRequestMaybe"},
		"meta":         {Type: "string", Optional: true},
		"github_token": {Type: "string", Optional: true, Secret: true},
		"a_b":          {Type: "string", Optional: true, JSON: "aB"},
		"a_b_2":        {Type: "string", Optional: true, JSON: "a_b", Renamed: true},
	} {
		f := fieldNamed(t, m, name)
		if f.Type != want.Type || f.Repeated != want.Repeated || f.Map != want.Map || f.Optional != want.Optional ||
			f.Raw != want.Raw || f.Renamed != want.Renamed || f.Secret != want.Secret || want.JSON != "" &&
			f.JSON != want.JSON {
			t.Errorf("%s: got %+v, want %+v", name, *f, want)
		}
	}
	if slices.ContainsFunc(m.Fields, func(f *Field) bool { return f.JSON == "handle" }) {
		t.Error("an in-process handle got a field")
	}
	if !m.TopLevel || pl.Messages["SessionServiceGoResponse"].Shape != ShapeNull {
		t.Error("the messages of the rpc are not what they should be")
	}
}

func TestPlanRequiredMembers(t *testing.T) {
	t.Parallel()
	pl := planOf(t, NewLedger(), modelOf(t, "1", `"One":{"enum":["only"]},"R":{"type":"object",
		"required":["kind","one","s","ns","nl"],"properties":{"kind":{"const":true},"one":{"$ref":"#/definitions/One"},
		"s":{"type":"string"},"ns":{"type":["string","null"]},"nl":{"anyOf":[{"type":"array","items":{"type":"string"}},{"type":"null"}]}}}`,
		method("go", `"r":{"$ref":"#/definitions/R"}`, `{"type":"null"}`)))
	m := pl.Messages["R"]
	if want := []Const{{"kind", "true"}, {"one", `"only"`}}; !slices.Equal(m.Consts, want) {
		t.Errorf("constants: got %v, want %v", m.Consts, want)
	}
	if f := fieldNamed(t, m, "s"); f.Optional || !f.Required {
		t.Errorf("a required string must have implicit presence: %+v", f)
	}
	if f := fieldNamed(t, m, "ns"); !f.Optional || !f.Required || !f.Nullable {
		t.Errorf("a required nullable string must tell null from empty: %+v", f)
	}
	if f := fieldNamed(t, m, "nl"); f.Type != "StringList" || !f.Nullable {
		t.Errorf("a required nullable list must tell null from empty: %+v", f)
	}
}

func TestPlanUnions(t *testing.T) {
	t.Parallel()
	defs := `
		"A":{"type":"object","required":["kind"],"properties":{"kind":{"const":"a"}}},
		"B":{"type":"object","required":["kind"],"properties":{"kind":{"const":"b-c"}}},
		"Wide":{"type":"object","required":["kind"],"properties":{"kind":{"enum":["d","e"]}}},
		"Tagged":{"anyOf":[{"$ref":"#/definitions/A"},{"$ref":"#/definitions/B"},{"$ref":"#/definitions/Wide"}]},
		"ServerStdio":{"type":"object","required":["command"],"properties":{"command":{"type":"string"}}},
		"ServerHttp":{"type":"object","required":["url"],"properties":{"url":{"type":"string"}}},
		"Server":{"anyOf":[{"$ref":"#/definitions/ServerStdio"},{"$ref":"#/definitions/ServerHttp"}]},
		"Outer":{"anyOf":[{"$ref":"#/definitions/Tagged"},{"type":"object","required":["kind"],"properties":{"kind":{"const":"z"}}}]},
		"Mixed":{"anyOf":[{"type":"string"},{"type":"boolean"},{"type":"number"},{"type":"array","items":{"type":"string"}},{"$ref":"#/definitions/A"}]},
		"Words":{"anyOf":[{"const":"x"},{"enum":["y"]}]}`
	pl := planOf(t, NewLedger(),
		modelOf(t, "1", defs, method("go", `"t":{"$ref":"#/definitions/Tagged"},"s":{"$ref":"#/definitions/Server"},
		"o":{"$ref":"#/definitions/Outer"},"m":{"$ref":"#/definitions/Mixed"},"w":{"$ref":"#/definitions/Words"}`,
			`{"type":"null"}`)))
	for _, tc := range []struct {
		message, discriminator string
		cases                  string // name type tag
	}{
		{"Tagged", "kind", "a A a; b_c B b-c; wide Wide d,e"},
		{"Server", "", "stdio ServerStdio ; http ServerHttp "},
		{"Outer", "kind", "tagged Tagged a,b-c,d,e; z OuterZ z"},
		{"Mixed", "", "string_value string ; bool_value bool ; double_value double ; list StringList ; a A "},
	} {
		m := pl.Messages[tc.message]
		var got []string
		for _, f := range m.Fields {
			got = append(got, f.Name+" "+f.Type+" "+f.Tag)
		}
		if m.Shape != ShapeUnion || m.Discriminator != tc.discriminator || strings.Join(got, "; ") != tc.cases {
			t.Errorf("%s: got %s %q %q, want %q %q", tc.message, m.Shape, m.Discriminator, strings.Join(got, "; "),
				tc.discriminator, tc.cases)
		}
	}
	if pl.Enums["Words"] == nil {
		t.Error("a union of strings must be an enum")
	}
}

func TestPlanResults(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, result string
		shape        Shape
		field        string
	}{
		{"null", `{"type":"null"}`, ShapeNull, ""},
		{"object", `{"type":"object","properties":{"a":{"type":"string"}}}`, ShapeObject, "a string"},
		{"empty", `{"type":"object","properties":{},"additionalProperties":false}`, ShapeObject, ""},
		{"bool", `{"type":"boolean"}`, ShapeValue, "value bool"},
		{"any", `{}`, ShapeValue, "value string"},
		{"dictionary", `{"type":"object","additionalProperties":{"type":"integer"}}`, ShapeMap, "entries int64"},
		{"array", `{"type":"array","items":{"type":"string"}}`, ShapeList, "items string"},
		{"objectOrNull", `{"anyOf":[{"$ref":"#/definitions/O"},{"type":"null"}]}`, ShapeValue, "value O"},
		{"objectOrNothing", `{"anyOf":[{"$ref":"#/definitions/O"},{"not":{}}]}`, ShapeValue, "value O"},
		{"union", `{"anyOf":[{"type":"string"},{"$ref":"#/definitions/O"}]}`, ShapeUnion, "string_value string"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			pl := planOf(t, NewLedger(),
				modelOf(t, "1", `"O":{"type":"object","properties":{"a":{"type":"string"}}}`,
					method("go", "", tc.result)))
			m := pl.Messages["SessionServiceGoResponse"]
			got := ""
			if len(m.Fields) > 0 {
				got = m.Fields[0].Name + " " + m.Fields[0].Type
			}
			if m.Shape != tc.shape || got != tc.field {
				t.Errorf("got %s %q, want %s %q", m.Shape, got, tc.shape, tc.field)
			}
		})
	}
}

func TestPlanEnvelope(t *testing.T) {
	t.Parallel()
	pl := planOf(t, NewLedger(), modelOf(t, "1", "", ""))
	m := pl.Messages[eventUnion]
	if m.Shape != ShapeEnvelope || m.Discriminator != "type" || m.DataMember != "data" {
		t.Fatalf("got %+v", m)
	}
	for name, number := range map[string]int{"event_type": 1, "id": 2, "timestamp": 3, "parent_id": 4, "agent_id": 5,
		"ephemeral": 6, "session_idle": 10, "note": 11} {
		if f := fieldNamed(t, m, name); f.Number != number {
			t.Errorf("%s: got number %d, want %d", name, f.Number, number)
		}
	}
}

func TestPlanRefusesClashes(t *testing.T) {
	t.Parallel()
	for name, defs := range map[string]string{
		"two messages": `"XA":{"type":"object","properties":{"p":{"type":"string"}}},"X":{"type":"object","properties":{"a":{"type":"object","properties":{"q":{"type":"string"}}},"b":{"$ref":"#/definitions/XA"}}}`,
		"enum values":  `"X":{"type":"object","properties":{"a":{"$ref":"#/definitions/Foo"},"b":{"$ref":"#/definitions/FooBar"}}},"Foo":{"enum":["bar-x","y"]},"FooBar":{"enum":["x","z"]}`,
	} {
		m, err := Merge([]*Model{modelOf(t, "1", defs,
			method("go", `"x":{"$ref":"#/definitions/X"}`, `{"type":"null"}`))})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := newPlan(m); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func TestFilesHaveOneUser(t *testing.T) {
	t.Parallel()
	pl := planOf(t, NewLedger(), modelOf(t, "1",
		`"Both":{"type":"object","properties":{"c":{"$ref":"#/definitions/Child"}}},"Child":{"type":"object","properties":{"a":{"type":"string"}}},
		 "Mine":{"type":"object","properties":{"a":{"type":"string"}}}`,
		method("go", `"b":{"$ref":"#/definitions/Both"},"m":{"$ref":"#/definitions/Mine"}`, `{"type":"null"}`)+
			`,"x":{"y":{"rpcMethod":"session.x.y","result":{"type":"object","properties":{"e":{"$ref":"#/definitions/SessionEvent"}}},
			"params":{"type":"object","properties":{"b":{"$ref":"#/definitions/Both"}}}}}`))
	for name, want := range map[string]string{
		"Both": extraFile, "Child": extraFile, "Mine": "session", eventUnion: eventFile, "IdleData": eventTypes,
		"SessionServiceGoRequest": "session", "SessionXServiceYRequest": "session_x",
	} {
		if got := pl.Messages[name].File; got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}
