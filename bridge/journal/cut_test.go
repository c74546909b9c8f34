package journal

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 500)
	for name, test := range map[string]struct {
		value string
		limit int
		cut   bool
	}{
		"fits":                           {`{"a":"b"}`, 100, false},
		"exactly":                        {`"` + long + `"`, 502, false},
		"one byte over":                  {`"` + long + `"`, 501, true},
		"escaped quotes":                 {`{"a":"` + strings.Repeat(`\"`, 300) + `"}`, 200, true},
		"escaped backslashes":            {`{"a":"` + strings.Repeat(`\\`, 300) + `"}`, 200, true},
		"characters of several bytes":    {`{"a":"` + strings.Repeat("€", 300) + `"}`, 200, true},
		"surrogate pairs":                {`{"a":"` + strings.Repeat(`\ud83d\ude00`, 100) + `"}`, 200, true},
		"lone surrogates, then escapes":  {`{"a":"` + strings.Repeat(`\ud83d\nab`, 100) + `"}`, 200, true},
		"lone surrogate, then a unicode": {`{"a":"` + strings.Repeat(`\uD83D\u00e9`, 100) + `"}`, 200, true},
		"a long key stays":               {`{"` + long + `":"` + long + `"}`, 700, true},
		"a string with a colon after it": {`["` + long + `",":"]`, 200, true},
		"many short strings":             {`[` + strings.Repeat(`"ab",`, 300) + `0]`, 200, true},
		"a long number":                  {`{"a":` + strings.Repeat("1", 300) + `}`, 200, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, cut := Cut([]byte(test.value), test.limit); cut != test.cut {
				t.Errorf("cut is %v, want %v", cut, test.cut)
			}
			for limit := 40; limit < len(test.value)+3; limit++ {
				checkCut(t, []byte(test.value), limit)
			}
		})
	}
}

// checkCut checks what Cut promises of any well-formed value.
func checkCut(t *testing.T, value []byte, limit int) {
	t.Helper()
	before := string(value)
	out, cut := Cut(value, limit)
	switch {
	case string(value) != before:
		t.Fatal("the value was written to")
	case !cut:
		if string(out) != before || len(value) > limit {
			t.Fatalf("not cut to %d: %q", limit, out)
		}
		return
	case len(value) <= limit:
		t.Fatalf("cut although %d bytes fit into %d", len(value), limit)
	case len(out) > limit:
		t.Fatalf("%d bytes, over %d", len(out), limit)
	case utf8.Valid(value) && !utf8.Valid(out):
		t.Fatalf("not UTF-8: %q", out)
	case string(out) == "null":
		return
	}
	var was, is any
	if err := json.Unmarshal(out, &is); err != nil {
		t.Fatalf("%v in %q", err, out)
	}
	if err := json.Unmarshal(value, &was); err != nil {
		t.Fatal(err)
	}
	checkPrefix(t, was, is)
}

// checkPrefix checks that is equals was but for strings that end early.
func checkPrefix(t *testing.T, was, is any) {
	t.Helper()
	switch was := was.(type) {
	case string:
		is, ok := is.(string)
		if !ok || is != was && !strings.HasPrefix(was, strings.TrimSuffix(is, cutMark)) {
			t.Fatalf("%q was cut to %q", was, is)
		}
	case []any:
		is, ok := is.([]any)
		if !ok || len(is) != len(was) {
			t.Fatalf("%v became %v", was, is)
		}
		for i := range was {
			checkPrefix(t, was[i], is[i])
		}
	case map[string]any:
		is, ok := is.(map[string]any)
		if !ok || len(is) != len(was) {
			t.Fatalf("%v became %v", was, is)
		}
		for k := range was {
			checkPrefix(t, was[k], is[k])
		}
	default:
		if was != is {
			t.Fatalf("%v became %v", was, is)
		}
	}
}

func FuzzCut(f *testing.F) {
	for _, seed := range []string{
		`{"a":"` + strings.Repeat("x", 200) + `"}`, `["` + strings.Repeat(`\u00e9\ud83d\ude00`, 30) + `"]`,
		`{"type":"t","data":{"k":"` + strings.Repeat(`\ud800\\"`[:8], 40) + `"}}`, `[[["a"]],1e5,null,true,"\ud83d"]`,
	} {
		f.Add([]byte(seed), uint16(50))
	}
	f.Fuzz(func(t *testing.T, value []byte, limit uint16) {
		if !json.Valid(value) {
			return
		}
		checkCut(t, value, max(int(limit), 4))
	})
}

func TestCutEvent(t *testing.T) {
	t.Parallel()
	numbers := `[` + strings.Repeat("1,", 500) + `1]`
	for name, test := range map[string]struct{ event, want string }{
		"strings are cut": {
			`{"type":"a.b","data":{"n":1,"text":"` + strings.Repeat("x", 500) + `"}}`,
			`{"type":"a.b","data":{"n":1,"text":"` + strings.Repeat("x", 100) + cutMark + `"}}`,
		},
		"data that cannot be cut goes": {
			`{"type":"a.b","id":"1","data":{"n":` + numbers + `}}`, `{"data":{},"id":"1","type":"a.b"}`,
		},
		"whatever else cannot be cut goes": {
			`{"type":"a.b","odd":[` + strings.Repeat("1,", 5000) + `1],"data":{}}`, `{"data":{},"type":"a.b"}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, cut := CutEvent([]byte(test.event), 200)
			if !cut || string(got) != test.want {
				t.Errorf("got %v %s\nwant %s", cut, got, test.want)
			}
		})
	}
}
