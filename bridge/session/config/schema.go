package config

import (
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
)

// checkSchema refuses a JSON Schema that no reader can use: a keyword with a value of the wrong type, an unknown type,
// or a reference to a part that the schema does not have. The CLI passes the schemas of tools on, and the model
// provider then rejects every request of the turn. Unknown keywords, annotations and patterns are not checked: the
// dialects differ in them. field names the schema in errors.
func checkSchema(schema json.RawMessage, field string) error {
	c := schemaCheck{root: schema}
	c.schema(schema, "")
	if c.problem == "" {
		return nil
	}
	return fault.New(fault.InvalidField, "not a JSON Schema: at %q, %s", "#"+c.at, c.problem).WithField(field)
}

// schemaCheck finds the first problem of a schema.
type schemaCheck struct {
	root json.RawMessage
	// problem is what is wrong, and at the JSON pointer of the place.
	problem, at string
}

// keyword is the form of a keyword's value.
type keyword int

const (
	oneSchema  keyword = iota + 1
	schemaList         // a non-empty array of schemas
	schemaMap          // an object of schemas
	oneOrList          // a schema, or an array of schemas
	stringList         // an array of strings
	anyList            // an array
	typeName           // a type, or an array of types
	reference
)

// keywords are the keywords that the check reads.
var keywords = map[string]keyword{
	"type": typeName, "$ref": reference, "enum": anyList, "required": stringList,
	"properties": schemaMap, "patternProperties": schemaMap, "$defs": schemaMap, "definitions": schemaMap, "dependentSchemas": schemaMap,
	"allOf": schemaList, "anyOf": schemaList, "oneOf": schemaList, "prefixItems": schemaList,
	"items": oneOrList, "additionalItems": oneSchema, "additionalProperties": oneSchema, "unevaluatedItems": oneSchema,
	"unevaluatedProperties": oneSchema, "contains": oneSchema, "propertyNames": oneSchema, "not": oneSchema,
	"if": oneSchema, "then": oneSchema, "else": oneSchema,
}

// typeNames are the types of JSON Schema.
var typeNames = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

func (c *schemaCheck) fail(at, problem string) {
	if c.problem == "" {
		c.problem, c.at = problem, at
	}
}

// schema checks a schema, which is at the pointer at.
func (c *schemaCheck) schema(text json.RawMessage, at string) {
	if s := string(text); s == "true" || s == "false" {
		return
	}
	members, err := jsonobj.Parse(text)
	if err != nil {
		c.fail(at, "there is neither an object nor a boolean")
		return
	}
	for _, m := range members {
		c.keyword(keywords[m.Key], m.Value, at+"/"+escapePointer(m.Key))
	}
}

// keyword checks the value of a keyword.
func (c *schemaCheck) keyword(form keyword, value json.RawMessage, at string) {
	switch form {
	case oneSchema:
		c.schema(value, at)
	case schemaList:
		c.list(value, at)
	case oneOrList:
		if len(value) > 0 && value[0] == '[' {
			c.list(value, at)
		} else {
			c.schema(value, at)
		}
	case schemaMap:
		members, err := jsonobj.Parse(value)
		if err != nil {
			c.fail(at, "there is no object of schemas")
		}
		for _, m := range members {
			c.schema(m.Value, at+"/"+escapePointer(m.Key))
		}
	case stringList:
		var list []string
		if string(value) == "null" || json.Unmarshal(value, &list) != nil {
			c.fail(at, "there is no array of strings")
		}
	case anyList:
		var list []json.RawMessage
		if string(value) == "null" || json.Unmarshal(value, &list) != nil {
			c.fail(at, "there is no array")
		}
	case typeName:
		c.types(value, at)
	case reference:
		c.reference(value, at)
	}
}

func (c *schemaCheck) list(value json.RawMessage, at string) {
	var list []json.RawMessage
	if json.Unmarshal(value, &list) != nil || len(list) == 0 {
		c.fail(at, "there is no array of schemas")
	}
	for i, schema := range list {
		c.schema(schema, at+"/"+strconv.Itoa(i))
	}
}

func (c *schemaCheck) types(value json.RawMessage, at string) {
	list := []string{jsonobj.Text(value)}
	if len(value) > 0 && value[0] == '[' && json.Unmarshal(value, &list) != nil {
		list = nil
	}
	unknown := func(name string) bool { return !slices.Contains(typeNames, name) }
	if len(list) == 0 || slices.ContainsFunc(list, unknown) {
		c.fail(at, "there is no type among "+strings.Join(typeNames, ", "))
	}
}

// reference checks that a pointer into the schema leads somewhere. It ignores other references: a reader may know the
// anchor or the other schema.
func (c *schemaCheck) reference(value json.RawMessage, at string) {
	ref := jsonobj.Text(value)
	if ref == "" {
		c.fail(at, "there is no reference")
		return
	}
	pointer, local := strings.CutPrefix(ref, "#/")
	if !local {
		return
	}
	if path, err := url.PathUnescape(pointer); err != nil || !resolves(c.root, strings.Split(path, "/")) {
		c.fail(at, "the reference "+strconv.Quote(ref)+" leads nowhere")
	}
}

// resolves reports whether a JSON value has a part at the path of a JSON pointer.
func resolves(value json.RawMessage, path []string) bool {
	for _, step := range path {
		if len(value) > 0 && value[0] == '[' {
			var list []json.RawMessage
			i, err := strconv.Atoi(step)
			if json.Unmarshal(value, &list) != nil || err != nil || i < 0 || i >= len(list) {
				return false
			}
			value = list[i]
			continue
		}
		members, err := jsonobj.Parse(value)
		if err != nil {
			return false
		}
		if value = members.Get(unescapePointer.Replace(step)); value == nil {
			return false
		}
	}
	return true
}

var unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")

func escapePointer(name string) string {
	return strings.NewReplacer("~", "~0", "/", "~1").Replace(name)
}
