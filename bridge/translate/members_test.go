package translate_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
)

func TestMembers(t *testing.T) {
	t.Parallel()
	var got []string
	for m, err := range translate.Members([]byte(` { "a" : 1 , "b\u0020c":{"d":[2]},"":null,"a":"x" } `)) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(m.Name)+"|"+string(m.Key)+"|"+string(m.Value))
	}
	want := `a|"a"|1; b c|"b\u0020c"|{"d":[2]}; ||null; a|"a"|"x"`
	want = strings.Replace(want, "||null", `|""|null`, 1)
	if strings.Join(got, "; ") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "; "), want)
	}
	for range translate.Members([]byte(`{"a":1,"b":2}`)) {
		break // leaving early must be possible
	}
}

func TestMembersErrors(t *testing.T) {
	t.Parallel()
	for _, obj := range []string{``, `null`, `[]`, `{`, `{"a"}`, `{"a":1`, `{"a":1,}`, `{"a":1}x`, `{} {}`, `{"a":01}`, "{\"\xff\":1}", `{"a":"\x"}`} {
		var last error
		for _, err := range translate.Members([]byte(obj)) {
			last = err
		}
		if !errors.As(last, new(*translate.Error)) {
			t.Errorf("Members(%q) ends with %v", obj, last)
		}
	}
}

func TestEditObjects(t *testing.T) {
	t.Parallel()
	edit := func(f func(dst []byte) ([]byte, error)) string {
		out, err := f([]byte("kept"))
		if err != nil {
			return string(out) + " error"
		}
		return string(out)
	}
	merge := func(base, overlay string) string {
		return edit(func(dst []byte) ([]byte, error) {
			return translate.MergeObjects(dst, []byte(base), []byte(overlay))
		})
	}
	set := func(obj, name, value string) string {
		return edit(func(dst []byte) ([]byte, error) {
			return translate.SetMember(dst, []byte(obj), name, []byte(value))
		})
	}
	remove := func(obj, name string) string {
		return edit(func(dst []byte) ([]byte, error) { return translate.DeleteMember(dst, []byte(obj), name) })
	}
	tests := []struct{ name, got, want string }{
		{"merge", merge(`{"b":1,"a":{"x":1}}`, `{"c":3,"a":{"y":2}}`), `kept{"b":1,"a":{"y":2},"c":3}`},
		{"merge with escapes", merge(`{"\u0061":1}`, `{"a":2,"b\"":3}`), `kept{"\u0061":2,"b\"":3}`},
		{"merge repeated", merge(`{"a":1,"b":2,"a":3}`, `{"c":1,"c":2}`), `kept{"a":3,"b":2,"c":2}`},
		{"merge nothing", merge(``, `{}`), `kept{}`},
		{"merge into nothing", merge(``, ` { "a" : 1 } `), `kept{"a":1}`},
		{"merge malformed base", merge(`[]`, `{}`), `kept error`},
		{"merge malformed overlay", merge(`{}`, `{"a":}`), `kept error`},
		{"lone surrogates differ", merge(`{"\ud800":1}`, `{"\ud801":2}`), `kept{"\ud800":1,"\ud801":2}`},
		{"set in place", set(`{"a":1,"b":2}`, "a", `[3]`), `kept{"a":[3],"b":2}`},
		{"set new", set(`{"a":1}`, "b\"\n", `null`), `kept{"a":1,"b\"\n":null}`},
		{"set in nothing", set(``, "a", `1`), `kept{"a":1}`},
		{"set malformed", set(`{}`, "a", `1},{`), `kept error`},
		{"set two members", set(`{}`, "a", `1,"b":2`), `kept error`},
		{"delete", remove(`{"a":1,"b":2,"\u0061":3}`, "a"), `kept{"b":2}`},
		{"delete all", remove(`{"a":1}`, "a"), `kept{}`},
		{"delete from malformed", remove(`{"a":1`, "a"), `kept error`},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: got %s, want %s", tt.name, tt.got, tt.want)
		}
	}
}

func TestLookup(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"a": "3", "b": `{"c":1}`, "z": ""} {
		got, err := translate.Lookup([]byte(`{"a":1,"b":{"c":1},"\u0061":3}`), name)
		if err != nil || string(got) != want {
			t.Errorf("Lookup(%q) = %q, %v", name, got, err)
		}
	}
	if _, err := translate.Lookup([]byte(`{"a":1`), "a"); err == nil {
		t.Error("Lookup accepts a malformed object")
	}
}
