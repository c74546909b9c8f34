package jsonobj

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func TestObject(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		do   func(o Object) Object
		want string
	}{
		"kept as it is":       {func(o Object) Object { return o }, `{"b":1.0,"a":"\u00e9","c":{"z":1,"y":2}}`},
		"set in its place":    {func(o Object) Object { o.SetString("a", "x\"y"); return o }, `{"b":1.0,"a":"x\"y","c":{"z":1,"y":2}}`},
		"set a new one":       {func(o Object) Object { o.SetBool("d", true); return o }, `{"b":1.0,"a":"\u00e9","c":{"z":1,"y":2},"d":true}`},
		"removed":             {func(o Object) Object { o.Set("a", nil); return o }, `{"b":1.0,"c":{"z":1,"y":2}}`},
		"removed what is not": {func(o Object) Object { o.Set("x", nil); return o }, `{"b":1.0,"a":"\u00e9","c":{"z":1,"y":2}}`},
		"merged": {func(o Object) Object {
			return o.Merge(Object{{"c", []byte("false")}, {"n", []byte("null")}})
		}, `{"b":1.0,"a":"\u00e9","c":false,"n":null}`},
		"a merge leaves the old one": {func(o Object) Object {
			o.Merge(Object{{"b", []byte("2")}})
			c := o.Clone()
			c.Set("a", nil)
			c.SetBool("b", false)
			return o
		}, `{"b":1.0,"a":"\u00e9","c":{"z":1,"y":2}}`},
	} {
		o := object(t, ` { "b":1.0, "a":"\u00e9","c":{"z":1,"y":2} } `)
		if got := string(test.do(o).JSON()); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	o := object(t, `{"s":"é","t":true,"n":1}`)
	if o.String("s") != "é" || o.String("n") != "" || o.String("x") != "" || !o.Bool("t") || o.Bool("s") || o.Bool("x") {
		t.Error("a value is read wrongly")
	}
	if got := string(Object(nil).JSON()); got != "{}" {
		t.Errorf("no members give %s", got)
	}
	for _, bad := range []string{"", "[]", "null", `{"a":}`, `{"a":1`, `{"a":1}}`} {
		if o, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%q was parsed to %v", bad, o)
		}
	}
}

// Objects with many members are read, and merged, as those with few: repeated keys keep their place and have their last
// value. A million members take less than a second; with a scan for each they took an hour.
func TestManyMembers(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	const many = 1_000_000
	text.WriteString(`{"again":0`)
	for i := range many {
		fmt.Fprintf(&text, `,"k%d":%d`, i, i)
	}
	text.WriteString(`,"again":1,"k7":true}`)
	o := object(t, text.String())
	if len(o) != many+1 || o[0].Key != "again" || string(o[0].Value) != "1" || string(o.Get("k7")) != "true" {
		t.Errorf("%d members, the first is %v", len(o), o[0])
	}
	merged := o[:many/2].Merge(o)
	if len(merged) != len(o) || !bytes.Equal(merged.JSON(), o.JSON()) {
		t.Error("half of the members, merged with all, are not all")
	}
	without := merged.Merge(Object{{Key: "k40"}, {Key: "new", Value: []byte("2")}, {Key: "k41", Value: []byte("3")}})
	if len(without) != len(o) || without.Get("k40") != nil || string(without.Get("k41")) != "3" || string(without.Get("new")) != "2" {
		t.Error("a member without a value is not removed, or moves others")
	}
}

func object(t *testing.T, text string) Object {
	t.Helper()
	o, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}
