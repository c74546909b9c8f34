package config

import (
	"fmt"
	"strings"
	"testing"
)

// A schema is checked in a time that grows with its length. Each of these took minutes when a reference read the whole
// schema again, or when a place was written down before there was a problem.
func TestLargeSchemas(t *testing.T) {
	t.Parallel()
	const many = 100_000
	repeated := func(format string) string {
		var b strings.Builder
		for i := range many {
			fmt.Fprintf(&b, format, i)
		}
		return strings.TrimSuffix(b.String(), ",")
	}
	for name, test := range map[string]struct{ schema, problem string }{
		"references to one part": {`{"$defs":{"a":{}},"properties":{` + repeated(`"p%d":{"$ref":"#/$defs/a"},`) + `}}`, ""},
		"references to many parts": {`{"$defs":{` + repeated(`"a%d":{},`) + `},"anyOf":[` + repeated(`{"$ref":"#/$defs/a%d"},`) +
			`]}`, ""},
		"a long name": {`{"properties":{"` + strings.Repeat("x", 1<<20) + `":{"properties":{` + repeated(`"p%d":true,`) + `}}}}`, ""},
		"a problem at last": {`{"properties":{` + repeated(`"p%d":true,`) + `,"a/b":{"allOf":[true,{"type":"text"}]}}}`,
			`"#/properties/a~1b/allOf/1/type", there is no type`},
	} {
		err := checkSchema([]byte(test.schema), "schema")
		if (err == nil) != (test.problem == "") || err != nil && !strings.Contains(err.Error(), test.problem) {
			t.Errorf("%s: %.200v", name, err)
		}
	}
}
