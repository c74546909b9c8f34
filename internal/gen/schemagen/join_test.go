package schemagen

import (
	"fmt"
	"strings"
	"testing"
)

// The definitions that TestJoin and TestJoinHasNoStops use.
const joinDefs = `
	"Old":{"type":"object","additionalProperties":false,"required":["gone"],"properties":{"gone":{"type":"boolean"}}},
	"New":{"type":"object","additionalProperties":false,"required":["gone","came"],"properties":{"gone":{"type":"boolean"},"came":{"type":"boolean"}}},
	"Wide":{"type":"object","additionalProperties":false,"required":["gone"],"properties":{"gone":{"type":"boolean"},"came":{"type":"boolean"}}},
	"Yes":{"type":"object","additionalProperties":false,"required":["gone"],"properties":{"gone":{"const":true},"why":{"type":"string"}}},
	"No":{"type":"object","additionalProperties":false,"required":["gone"],"properties":{"gone":{"const":false}}},
	"Named":{"type":"object","additionalProperties":false,"required":["gone","name"],"properties":{"gone":{"const":true},"name":{"type":"string"}}},
	"Few":{"enum":["a"]},"More":{"enum":["a","b"]},"Other":{"enum":["z"]},"Text":{"type":"string"},
	"Self":{"type":"object","additionalProperties":false,"properties":{"self":{"$ref":"#/definitions/Self"},"a":{"type":"string"}}},
	"Self2":{"type":"object","additionalProperties":false,"properties":{"self":{"$ref":"#/definitions/Self2"},"b":{"type":"string"}}}`

func ref(name string) string { return `{"$ref":"#/definitions/` + name + `"}` }

// TestJoin: what becomes of types that differ, each in what the message has for it.
func TestJoin(t *testing.T) {
	t.Parallel()
	alternatives := func(a, b string) string { return `{"anyOf":[` + a + `,` + b + `]}` }
	for _, tc := range []struct {
		name, old, new, want, rule string
	}{
		{"another name that lacks nothing", ref("Old"), ref("Wide"), "p|Wide", ""},
		{"another name that demands more", ref("Old"), ref("New"), "p|XP{gone:bool! came:bool}",
			"Old until 1, New since 2: members of both"},
		{"a name is given",
			`{"type":"object","additionalProperties":false,"required":["gone"],"properties":{"gone":{"type":"boolean"}}}`, ref("Old"), "p|Old", ""},
		{"an enum of more values", ref("Few"), ref("More"), "p|More", ""},
		{"an enum of fewer values", ref("More"), ref("Few"), "p|XP[a b]", ""},
		{"enums become text", ref("Few"), ref("Text"), "p|string", "Few until 1, Text since 2: text"},
		{"text becomes an enum", ref("Text"), ref("Few"), "p|string", "Text until 1, Few since 2: text"},
		{"time becomes text", `{"type":"string","format":"date-time"}`, `{"type":"string"}`, "p|string",
			"time until 1, string since 2: text"},
		{"kinds differ", `{"type":"string"}`, `{"type":"boolean"}`, "p|XP{oneof string_value:string bool_value:bool}",
			"string until 1, bool since 2: alternatives"},
		{"a value becomes a list", `{"type":"string"}`, `{"type":"array","items":{"type":"integer"}}`,
			"p|XP{oneof string_value:string list:XPList}", "string until 1, list since 2: alternatives"},
		{"one of two becomes one", alternatives(`{"type":"string"}`, ref("Old")), ref("Old"),
			"p|XP{oneof string_value:string old:Old}", ""},
		{"alternatives that take the object in", ref("Old"), alternatives(ref("Yes"), ref("No")),
			"p|XP{oneof true:Yes false:No}", ""},
		{"alternatives that demand more", ref("Old"), alternatives(ref("Named"), ref("No")),
			"p|XP{oneof old:Old named:Named no:No}", "Old until 1, union since 2: alternatives"},
		{"anything", `{"type":"string"}`, `{}`, "p|string", "string until 1, any since 2: any JSON"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			pl := planOf(t, NewLedger(),
				modelOf(t, "1", joinDefs+`,`+object(`"p":`+tc.old), method("go", "", ref("X"))),
				modelOf(t, "2", joinDefs+`,`+object(`"p":`+tc.new), method("go", "", ref("X"))))
			m := pl.Messages["SessionServiceGoResponse"]
			got := strings.ReplaceAll(m.Fields[0].JSON+"|"+typeText(pl, m.Fields[0]), m.Name, "X")
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
			if rule := pl.Model.Differences["X.p"]; rule != tc.rule {
				t.Errorf("rule: got %q, want %q", rule, tc.rule)
			}
		})
	}
}

// typeText is a field's type, with its parts where it has no name.
func typeText(pl *Plan, f *Field) string {
	if e := pl.Enums[f.Type]; e != nil && strings.Contains(e.Path, ".") {
		var names []string
		for _, v := range e.Values {
			names = append(names, v.JSON)
		}
		return f.Type + "[" + strings.Join(names, " ") + "]"
	}
	m := pl.Messages[f.Type]
	if m == nil || m.Name == m.Path {
		return f.Type
	}
	var parts []string
	for _, f := range m.Fields {
		text := f.Name + ":" + f.Type
		if f.Required {
			text += "!"
		}
		parts = append(parts, text)
	}
	oneof := ""
	if m.Shape == ShapeUnion {
		oneof = "oneof "
	}
	return f.Type + "{" + oneof + strings.Join(parts, " ") + "}"
}

// TestJoinHasNoStops: for any form of a member, of parameters or of a result in one version, in the next, and again in
// the third, the generator has a rule, and no number means two things.
func TestJoinHasNoStops(t *testing.T) {
	t.Parallel()
	types := []string{
		`{}`, `{"type":"null"}`, `{"type":"boolean"}`, `{"const":true}`, `{"const":"a"}`, `{"type":"integer"}`,
		`{"type":"number"}`,
		`{"type":"string"}`, `{"type":"string","format":"date-time"}`, `{"type":"string","contentEncoding":"base64"}`,
		`{"type":["string","null"]}`, `{"enum":["a","c"]}`, ref("Few"), ref("More"), ref("Other"), ref("Text"),
		`{"type":"array","items":{"type":"string"}}`, `{"type":"array","items":` + ref("Old") + `}`,
		`{"type":"object","additionalProperties":{"type":"string"}}`, `{"type":"object"}`,
		`{"type":"object","additionalProperties":false,"properties":{"n":{"type":"integer"}}}`,
		ref("Old"), ref("New"), ref("Wide"), ref("Yes"), ref("Self"), ref("Self2"),
		`{"anyOf":[` + ref("Yes") + `,` + ref("No") + `]}`,
		`{"anyOf":[` + ref("Old") + `,{"type":"string"},{"type":"null"}]}`,
		`{"anyOf":[{"type":"object","properties":{"m":{"type":"integer"}}},{"type":"boolean"}]}`,
	}
	version := func(v int, member, result string) *Model {
		return modelOf(t, fmt.Sprint(v),
			joinDefs+`,`+object(`"p":`+member+`,"list":{"type":"array","items":`+member+`}`),
			method("go", `"x":`+ref("X"), result)+`,`+method("other", `"p":`+member, `{"type":"null"}`))
	}
	for i, first := range types {
		for j, second := range types {
			third := types[(i*7+j*3)%len(types)]
			ledger := NewLedger()
			var models []*Model
			for v, typ := range []string{first, second, third} {
				models = append(models, version(v+1, typ, typ))
				m, err := Merge(models)
				if err != nil {
					t.Fatal(err)
				}
				pl, _, err := newPlan(m)
				if err != nil {
					t.Fatalf("%s, then %s, then %s: %v", first, second, third, err)
				}
				pl.assignFiles(ledger.growCore(pl, nil))
				ledger.number(pl)
				checkNumbers(t, pl)
			}
		}
	}
}

// checkNumbers makes sure that no message has a number or a member twice.
func checkNumbers(t *testing.T, pl *Plan) {
	t.Helper()
	for _, m := range pl.Messages {
		seen := map[int]string{}
		for _, f := range m.Fields {
			if old := seen[f.Number]; old != "" {
				t.Errorf("%s: %s and %s have the number %d", m.Name, old, f.Name, f.Number)
			}
			seen[f.Number] = f.Name
		}
		for _, n := range m.Reserved {
			if seen[n] != "" {
				t.Errorf("%s: %s has the reserved number %d", m.Name, seen[n], n)
			}
		}
	}
}
