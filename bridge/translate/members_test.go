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
	for _, obj := range []string{``, `null`, `[]`, `{`, `{"a"}`, `{"a":1`, `{"a":1,}`, `{"a":1}x`, `{} {}`, `{"a":01}`,
		"{\"\xff\":1}", `{"a":"\x"}`} {
		var last error
		for _, err := range translate.Members([]byte(obj)) {
			last = err
		}
		if !errors.As(last, new(*translate.Error)) {
			t.Errorf("Members(%q) ends with %v", obj, last)
		}
	}
}
