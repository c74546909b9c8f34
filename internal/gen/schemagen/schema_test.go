package schemagen

import (
	"encoding/json"
	"testing"
)

func TestSchemaToType(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, schema string
		want         Type
	}{
		{"any", `{}`, Type{Kind: KindAny}},
		{"true", `true`, Type{Kind: KindAny}},
		{"opaque", `{"x-opaque-json":true}`, Type{Kind: KindAny}},
		{"handle", `{"x-opaque-in-process":true,"type":"object"}`, Type{Kind: KindHandle}},
		{"time", `{"type":"string","format":"date-time"}`, Type{Kind: KindTime}},
		{"bytes", `{"type":"string","contentEncoding":"base64"}`, Type{Kind: KindBytes}},
		{"nullable", `{"type":["integer","null"]}`, Type{Kind: KindInt, Nullable: true}},
		{"null or string", `{"anyOf":[{"type":"string"},{"type":"null"}]}`, Type{Kind: KindString, Nullable: true}},
		{"undefined or string", `{"anyOf":[{"not":{}},{"type":"string"}]}`, Type{Kind: KindString, Absent: true}},
		{"union with any", `{"anyOf":[{"type":"string"},{}]}`, Type{Kind: KindAny}},
		{"constant beside reference", `{"$ref":"#/definitions/X","const":"a"}`, Type{Kind: KindConst, Const: `"a"`}},
		{"closed empty object", `{"type":"object","properties":{},"additionalProperties":false}`,
			Type{Kind: KindObject}},
		{"open empty object", `{"type":"object","properties":{}}`, Type{Kind: KindMap, Elem: &Type{Kind: KindAny}}},
		{"dictionary", `{"type":"object","additionalProperties":{"type":"number"}}`,
			Type{Kind: KindMap, Elem: &Type{Kind: KindNumber}}},
		{"array without items", `{"type":"array"}`, Type{Kind: KindList, Elem: &Type{Kind: KindAny}}},
		{"reference to the other file", `{"$ref":"session-events.schema.json#/definitions/X"}`,
			Type{Kind: KindRef, Ref: "X"}},
		{"open enum", `{"type":"string","x-extensible-enum":["a"]}`,
			Type{Kind: KindEnum, Values: []*Value{{Name: "a"}}}},
		{"anyOf beside properties",
			`{"type":"object","properties":{"a":{"type":"null"}},"additionalProperties":false,"anyOf":[{"required":["a"]}]}`,
			Type{Kind: KindObject, Props: []*Prop{{Name: "a", Type: &Type{Kind: KindNull}}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var s schema
			if err := json.Unmarshal([]byte(tc.schema), &s); err != nil {
				t.Fatal(err)
			}
			got, err := s.toType()
			if err != nil {
				t.Fatal(err)
			}
			if !sameType(got, &tc.want) {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestSchemaRefusesUnknownTypes(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`{"type":"tuple"}`, `{"type":["string","integer"]}`,
		`{"type":"array","items":{"type":"x"}}`} {
		var s schema
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		if got, err := s.toType(); err == nil {
			t.Errorf("%s: got %+v, want an error", text, got)
		}
	}
}

func TestMembersKeepTheirOrder(t *testing.T) {
	t.Parallel()
	got, err := decodeMembers(json.RawMessage(`{"b":1,"a":{"z":1},"c":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 || got[0].name != "b" || got[1].name != "a" || string(got[1].value) != `{"z":1}` ||
		got[2].name != "c" {
		t.Errorf("got %v", got)
	}
}
