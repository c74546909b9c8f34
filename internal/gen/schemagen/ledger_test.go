package schemagen

import (
	"path/filepath"
	"slices"
	"testing"
)

func TestLedgerNeverRenumbers(t *testing.T) {
	t.Parallel()
	l := NewLedger()
	result := `{"type":"null"}`
	first := modelOf(t, "1", `"E":{"enum":["a","b"]}`,
		method("go", `"a":{"type":"string"},"b":{"type":"string"},"e":{"$ref":"#/definitions/E"}`, result))
	pl := planOf(t, l, first)
	if got := numbers(pl.Messages["SessionServiceGoRequest"]); got["a"] != 1 || got["b"] != 2 || got["e"] != 3 {
		t.Fatalf("got %v", got)
	}
	// A member before the others, one gone, and one of another type: as if 2 stood alone.
	second := modelOf(t, "2", `"E":{"enum":["c","b"]}`,
		method("go", `"z":{"type":"string"},"a":{"type":"boolean"},"e":{"$ref":"#/definitions/E"}`, result))
	pl = planOf(t, l, second)
	m := pl.Messages["SessionServiceGoRequest"]
	if got := numbers(m); got["z"] != 4 || got["a"] != 5 || got["e"] != 3 {
		t.Errorf("got %v", got)
	}
	if want := []int{1, 2}; !slices.Equal(m.Reserved, want) {
		t.Errorf("reserved: got %v, want %v", m.Reserved, want)
	}
	e := pl.Enums["E"]
	if e.Values[0].JSON != "b" || e.Values[0].Number != 2 || e.Values[1].JSON != "c" || e.Values[1].Number != 3 ||
		!slices.Equal(e.Reserved, []int{1}) {
		t.Errorf("enum: got %+v %+v, reserved %v", e.Values[0], e.Values[1], e.Reserved)
	}
	// Back again: the old numbers return.
	if got := numbers(planOf(t, l, first).Messages["SessionServiceGoRequest"]); got["a"] != 1 || got["b"] != 2 {
		t.Errorf("after the return: got %v", got)
	}
}

func numbers(m *Message) map[string]int {
	out := map[string]int{}
	for _, f := range m.Fields {
		out[f.Name] = f.Number
	}
	return out
}

func TestLedgerReservesCatchAlls(t *testing.T) {
	t.Parallel()
	l := NewLedger()
	planOf(t, l, modelOf(t, "1", "", method("go", "", `{"type":"object","properties":{"a":{"type":"string"}}}`)))
	pl := planOf(t, l, modelOf(t, "2", "", method("go", "", `{"anyOf":[{"type":"string"},{"type":"boolean"}]}`)))
	if got := pl.Messages["SessionServiceGoResponse"].Reserved; !slices.Equal(got, []int{1, jsonExtraNumber}) {
		t.Errorf("object to union: got %v", got)
	}
	pl = planOf(t, l, modelOf(t, "3", "", method("go", "", `{"type":"object","properties":{"a":{"type":"string"}}}`)))
	if got := pl.Messages["SessionServiceGoResponse"].Reserved; !slices.Contains(got, unrecognizedNumber) ||
		slices.Contains(got, jsonExtraNumber) {
		t.Errorf("union to object: got %v", got)
	}
}

func TestLedgerStepsOverTakenNumbers(t *testing.T) {
	t.Parallel()
	for in, want := range map[int]int{999: 999, 1000: 1002, 1001: 1002, 18999: 18999, 19000: 20000, 19999: 20000,
		20000: 20000} {
		if got := freeNumber(in); got != want {
			t.Errorf("%d: got %d, want %d", in, got, want)
		}
	}
}

func TestLedgerFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "ledger.json")
	l, err := ReadLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	m := modelOf(t, "1", `"E":{"enum":["a"]}`, method("go", `"e":{"$ref":"#/definitions/E"}`, `{"type":"boolean"}`))
	planOf(t, l, m)
	if err := l.Write(path); err != nil {
		t.Fatal(err)
	}
	again, err := ReadLedger(path)
	if err != nil {
		t.Fatal(err)
	}
	if again.Messages["SessionServiceGoRequest"]["e|E"] != 1 || again.Enums["E"]["a"] != 1 ||
		!slices.Equal(again.Shapes["SessionServiceGoResponse"], []Shape{ShapeValue}) ||
		!slices.Equal(again.Versions, []string{"1"}) {
		t.Errorf("got %+v", again)
	}
}
