package schemagen

import "testing"

func object(props string) string {
	return `"X":{"type":"object","additionalProperties":false,"properties":{` + props + `}}`
}

func TestMergeJoinsTypes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, old, new string
		want           Type
	}{
		{"null added", `{"type":"string"}`, `{"type":["string","null"]}`, Type{Kind: KindString, Nullable: true}},
		{"null taken away", `{"type":["string","null"]}`, `{"type":"string"}`, Type{Kind: KindString, Nullable: true}},
		{"wider number", `{"type":"integer"}`, `{"type":"number"}`, Type{Kind: KindNumber}},
		{"constant to enum", `{"const":"a"}`, `{"enum":["a","b"]}`,
			Type{Kind: KindEnum, Values: []*Value{{Name: "a"}, {Name: "b"}}}},
		{"constants differ", `{"const":"a"}`, `{"const":"b"}`,
			Type{Kind: KindEnum, Values: []*Value{{Name: "a"}, {Name: "b"}}}},
		{"flags differ", `{"const":true}`, `{"const":false}`, Type{Kind: KindBool}},
		{"enum loses a value", `{"enum":["a","b"]}`, `{"enum":["b"]}`,
			Type{Kind: KindEnum, Values: []*Value{{Name: "a"}, {Name: "b"}}}},
		{"union gains a variant", `{"anyOf":[{"type":"string"},{"type":"boolean"}]}`,
			`{"anyOf":[{"type":"string"},{"type":"integer"}]}`,
			Type{Kind: KindUnion, Variants: []*Type{{Kind: KindString}, {Kind: KindBool}, {Kind: KindInt}}}},
		{"type becomes a variant", `{"type":"string"}`, `{"anyOf":[{"type":"string"},{"type":"integer"}]}`,
			Type{Kind: KindUnion, Variants: []*Type{{Kind: KindString}, {Kind: KindInt}}}},
		{"list of wider", `{"type":"array","items":{"type":"integer"}}`, `{"type":"array","items":{"type":"number"}}`,
			Type{Kind: KindList, Elem: &Type{Kind: KindNumber}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m, err := Merge([]*Model{
				modelOf(t, "1", object(`"p":`+tc.old), ""),
				modelOf(t, "2", object(`"p":`+tc.new), ""),
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := findProp(m.defs["X"].Type.Props, "p").Type; !sameType(got, &tc.want) {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestMergeKeepsWhatIsGone(t *testing.T) {
	t.Parallel()
	m, err := Merge([]*Model{
		modelOf(t, "1",
			`"X":{"type":"object","required":["a","b"],"properties":{"a":{"type":"string"},"b":{"type":"string"}}},
			"Gone":{"type":"string"}`, method("old", "", `{"type":"null"}`)),
		modelOf(t, "2",
			`"X":{"type":"object","required":["a","c"],"properties":{"a":{"type":"string"},"c":{"type":"string"}}}`,
			method("new", "", `{"type":"null"}`)),
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct {
		required bool
		life     Life
	}{"a": {true, Life{0, 1}}, "b": {false, Life{0, 0}}, "c": {false, Life{1, 1}}} {
		p := findProp(m.defs["X"].Type.Props, name)
		if p == nil || p.Required != want.required || p.Life != want.life {
			t.Errorf("member %q: got %+v, want %+v", name, p, want)
		}
	}
	if m.defs["Gone"].Life != (Life{0, 0}) || m.methods["session.old"].Life != (Life{0, 0}) ||
		m.methods["session.new"].Life != (Life{1, 1}) {
		t.Error("definitions or methods have a wrong life")
	}
}

func TestMergeLeavesItsSourcesAlone(t *testing.T) {
	t.Parallel()
	a := modelOf(t, "1", object(`"p":{"type":"string"}`), "")
	b := modelOf(t, "2", object(`"q":{"type":"string"}`), "")
	if _, err := Merge([]*Model{a, b}); err != nil {
		t.Fatal(err)
	}
	if len(a.defs["X"].Type.Props) != 1 || len(b.defs["X"].Type.Props) != 1 || b.defs["X"].Life != (Life{}) {
		t.Error("merging changed what it was given")
	}
}
