package schema

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

type place struct {
	Name  string               `json:"name"`
	Tags  []string             `json:"tags,omitempty"`
	Size  *int                 `json:"size,omitempty"`
	Inner *struct{ Deep bool } `json:"inner,omitempty"`
	More  map[string]int       `json:"more,omitempty"`
	Any   any                  `json:"any,omitempty"`
}

// values are arguments that fit some of the schemas of the tests.
var values = []string{
	`null`, `true`, `0`, `1.5`, `-3`, `1e3`, `1e300`, `"a"`, `[]`, `{}`,
	`{"name":"a"}`, `{"name":1}`, `{"name":null}`, `{"name":"a","other":1}`,
	`{"name":"a","tags":["b"]}`, `{"name":"a","tags":["b",2]}`, `{"name":"a","tags":null}`, `{"name":"a","tags":{}}`,
	`{"name":"a","size":3}`, `{"name":"a","size":3.0}`, `{"name":"a","size":3.5}`, `{"name":"a","size":null}`,
	`{"name":"a","inner":{"deep":true}}`, `{"name":"a","inner":{"deep":1}}`, `{"name":"a","inner":{}}`,
	`{"name":"a","inner":{"deep":true,"x":1}}`, `{"name":"a","inner":null}`, `{"name":"a","inner":[]}`,
	`{"name":"a","more":{"x":1}}`, `{"name":"a","more":{"x":1.5}}`, `{"name":"a","more":{}}`, `{"name":"a","any":[{}]}`,
	`{"a":{"a":{"a":1}}}`, `["a",1]`, `[["a"]]`, `[[1]]`,
}

// A schema that compile accepts gives for each value the same as the validator.
func TestAcceptorAgreesWithTheValidator(t *testing.T) {
	t.Parallel()
	derived, err := jsonschema.For[place](nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(derived)
	if err != nil {
		t.Fatal(err)
	}
	for _, schema := range []string{
		string(text), `{}`, `{"type":"object"}`, `{"type":["object","null"]}`, `{"type":"integer"}`, `{"type":"number"}`,
		`{"type":["string","number"]}`, `{"required":["name"]}`, `{"properties":{"name":{"type":"string"}}}`,
		`{"additionalProperties":false}`, `{"additionalProperties":{"type":"string"}}`, `{"additionalProperties":true}`,
		`{"properties":{"name":{}},"additionalProperties":false}`, `{"items":{"type":"string"}}`,
		`{"items":{"items":{"type":"string"}}}`, `{"type":"array","items":{"type":["string","integer"]}}`,
		`{"title":"t","description":"d","type":"boolean"}`, `{"properties":{"size":{"type":"integer"}}}`,
	} {
		check, resolved := compiled(t, schema)
		if check == nil {
			t.Errorf("%s is left to the validator", schema)
			continue
		}
		for _, value := range values {
			var decoded any
			if err := json.Unmarshal([]byte(value), &decoded); err != nil {
				t.Fatal(err)
			}
			err := resolved.Validate(decoded)
			if check(decoded) != (err == nil) {
				t.Errorf("schema %s, value %s: accepted %t, the validator says %v", schema, value, check(decoded), err)
			}
		}
	}
}

// A schema with another keyword, at any depth, is left to the validator.
func TestOtherKeywordsAreNotCompiled(t *testing.T) {
	t.Parallel()
	for _, schema := range []string{
		`{"enum":["a"]}`, `{"const":1}`, `{"minimum":1}`, `{"pattern":"a"}`, `{"items":false}`, `{"minItems":1}`,
		`{"properties":{"name":{"maxLength":3}}}`, `{"properties":{"name":false}}`, `{"items":{"multipleOf":2}}`,
		`{"additionalProperties":{"const":1}}`, `{"additionalProperties":{"not":{"type":"string"}}}`,
		`{"$defs":{"a":{}},"properties":{"a":{"$ref":"#/$defs/a"}}}`, `{"anyOf":[{}]}`, `{"not":{}}`,
		`{"patternProperties":{"a":{}}}`, `{"prefixItems":[{}]}`, `{"unevaluatedProperties":false}`,
	} {
		if check, _ := compiled(t, schema); check != nil {
			t.Errorf("%s is compiled", schema)
		}
	}
}

func compiled(t *testing.T, text string) (acceptor, *jsonschema.Resolved) {
	t.Helper()
	schema := new(jsonschema.Schema)
	if err := json.Unmarshal([]byte(text), schema); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	return compile(schema), resolved
}

// Arguments that fit a derived schema are checked without the validator: they are decoded twice, and the check itself
// allocates nothing.
func TestCheckAllocatesNothingMore(t *testing.T) {
	check, err := Check[place](&cliv1.ToolDefinition{})
	if err != nil {
		t.Fatal(err)
	}
	raw := json.RawMessage(`{"name":"a","tags":["b"],"size":3,"inner":{"deep":true},"more":{"x":1}}`)
	decode := testing.AllocsPerRun(100, func() {
		var value any
		var args place
		if err := errors.Join(json.Unmarshal(raw, &value), json.Unmarshal(raw, &args)); err != nil {
			t.Error(err)
		}
	})
	checked := testing.AllocsPerRun(100, func() {
		var args place
		if err := check(raw, &args); err != nil {
			t.Error(err)
		}
	})
	if checked > decode {
		t.Errorf("%v allocations, want %v as for decoding", checked, decode)
	}
}
