package schemagen

import (
	"strings"
	"testing"
)

func TestChangelog(t *testing.T) {
	t.Parallel()
	before := modelOf(t, "1.0.1",
		`"Kind":{"type":"string","enum":["a","b"]},
		 "Gone":{"type":"object","properties":{"x":{"type":"string"}}},
		 "Box":{"type":"object","required":["id"],"properties":{"id":{"type":"string"},"old":{"type":"string"},"n":{"type":"integer"},
			"list":{"type":"array","items":{"type":"object","properties":{"q":{"type":"string"}}}}}}`,
		method("keep", `"a":{"type":"string"}`, `{"$ref":"#/definitions/Box"}`)+","+
			method("gone", "", `{"type":"null"}`)+","+method("same", "", `{"type":"null"}`))
	after := modelOf(t, "1.0.2",
		`"Kind":{"type":"string","enum":["a","c"]},
		 "New":{"type":"object","properties":{"y":{"type":"boolean"}}},
		 "Box":{"type":"object","properties":{"id":{"type":"string"},"n":{"type":"string"},"more":{"type":["string","null"]},
			"list":{"type":"array","items":{"type":"object","properties":{"q":{"type":"string"},"r":{"type":"string"}}}}}}`,
		method("keep", `"a":{"type":"string"},"b":{"type":"integer"}`, `{"type":"null"}`)+","+
			method("fresh", `"k":{"$ref":"#/definitions/Kind"}`, `{"type":"boolean"}`)+","+
			method("same", "", `{"type":"null"}`))
	var b strings.Builder
	if err := Compare(before, after).Print(&b); err != nil {
		t.Fatal(err)
	}
	want := `What CLI 1.0.2 changes over 1.0.1

Methods: 1 added, 1 removed, 1 changed
  + session.fresh
      (k?: Kind) -> bool
  - session.gone
  ~ session.keep
      + params.b?: int
      ~ result null, was Box

Callbacks: 0 added, 0 removed, 0 changed

Events: 0 added, 0 removed, 0 changed

Types: 1 added, 1 removed, 2 changed
  ~ Box
      - old
      ~ id is optional now
      ~ n string, was int
      + more?: string|null
      + list[].r?: string
  - Gone
  ~ Kind
      - "b"
      + "c"
  + New
      (y?: bool)
`
	if got := b.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestChangelogOfEvents(t *testing.T) {
	t.Parallel()
	a, b := modelOf(t, "1.0.1", "", ""), modelOf(t, "1.0.2", "", "")
	cases := b.defs[eventUnion].Type.Cases
	cases[0].Tag = "session.sleeping"
	c := Compare(a, b)
	if len(c.Events) != 2 || c.Events[0].Kind != Removed || c.Events[1].Kind != Added ||
		c.Events[1].Name != "session.sleeping" {
		t.Errorf("got %+v", c.Events)
	}
	if len(c.Types)+len(c.Methods)+len(c.Callbacks) != 0 {
		t.Errorf("changes where there are none: %+v", c)
	}
}
