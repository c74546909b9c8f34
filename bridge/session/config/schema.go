package config

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// checkSchema refuses a JSON Schema that no reader can use: a keyword with a value of the wrong type, an unknown type,
// or a reference to a part that the schema does not have. The CLI passes the schemas of tools on, and the model
// provider then rejects every request of the turn. Unknown keywords, annotations and patterns are not checked: the
// dialects differ in them. field names the schema in errors.
func checkSchema(schema json.RawMessage, field string) error {
	var c schemaCheck
	decoder := json.NewDecoder(bytes.NewReader(schema))
	decoder.UseNumber() // a number of any size
	if err := decoder.Decode(&c.root); err != nil {
		return fault.Wrap(err, fault.InvalidField, "not JSON").WithField(field)
	}
	c.schema(c.root)
	if c.problem == "" {
		return nil
	}
	return fault.New(fault.InvalidField, "not a JSON Schema: at %q, %s", "#"+c.at, c.problem).WithField(field)
}

// schemaCheck finds the first problem of a schema. Its time and memory grow with the schema's length alone, whatever is in
// the schema.
type schemaCheck struct {
	root any
	// path leads to the part that is being checked.
	path []string
	// problem is what is wrong, and at the JSON pointer of the place.
	problem, at string
}

// typeNames are the types of JSON Schema.
var typeNames = []string{"array", "boolean", "integer", "null", "number", "object", "string"}

func (c *schemaCheck) fail(problem string) {
	if c.problem != "" {
		return
	}
	c.problem = problem
	for _, name := range c.path {
		c.at += "/" + escapePointer.Replace(name)
	}
}

// under checks a part of the current part, unless there is a problem.
func (c *schemaCheck) under(name string, check func()) {
	if c.problem != "" {
		return
	}
	c.path = append(c.path, name)
	check()
	c.path = c.path[:len(c.path)-1]
}

// schema checks a schema.
func (c *schemaCheck) schema(value any) {
	if _, ok := value.(bool); !ok {
		c.members(value, "there is neither an object nor a boolean", c.keyword)
	}
}

// members checks the members of an object, in the order of their names.
func (c *schemaCheck) members(value any, otherwise string, check func(name string, value any)) {
	object, ok := value.(map[string]any)
	if !ok {
		c.fail(otherwise)
	}
	for _, name := range slices.Sorted(maps.Keys(object)) {
		c.under(name, func() { check(name, object[name]) })
	}
}

// keyword checks the value of a keyword.
func (c *schemaCheck) keyword(name string, value any) {
	list, isList := value.([]any)
	switch name {
	case "additionalItems", "additionalProperties", "contains", "else", "if", "not", "propertyNames", "then",
		"unevaluatedItems", "unevaluatedProperties":
		c.schema(value)
	case "items":
		if isList {
			c.list(list)
		} else {
			c.schema(value)
		}
	case "allOf", "anyOf", "oneOf", "prefixItems":
		c.list(list)
	case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
		c.members(value, "there is no object of schemas", func(_ string, schema any) { c.schema(schema) })
	case "required":
		if !isList || slices.ContainsFunc(list, func(e any) bool { _, ok := e.(string); return !ok }) {
			c.fail("there is no array of strings")
		}
	case "enum":
		if !isList {
			c.fail("there is no array")
		}
	case "type":
		if !isList {
			list = []any{value}
		}
		unknown := func(e any) bool { name, ok := e.(string); return !ok || !slices.Contains(typeNames, name) }
		if len(list) == 0 || slices.ContainsFunc(list, unknown) {
			c.fail("there is no type among " + strings.Join(typeNames, ", "))
		}
	case "$ref":
		c.reference(value)
	}
}

// list checks an array of schemas, which must not be empty.
func (c *schemaCheck) list(list []any) {
	if len(list) == 0 {
		c.fail("there is no array of schemas")
	}
	for i, schema := range list {
		c.under(strconv.Itoa(i), func() { c.schema(schema) })
	}
}

// reference checks that a pointer into the schema leads somewhere. It ignores other references: a reader may know the
// anchor or the other schema.
func (c *schemaCheck) reference(value any) {
	ref, _ := value.(string)
	if ref == "" {
		c.fail("there is no reference")
		return
	}
	pointer, local := strings.CutPrefix(ref, "#/")
	if !local {
		return
	}
	if path, err := url.PathUnescape(pointer); err != nil || !c.resolves(path) {
		c.fail("the reference " + strconv.Quote(ref) + " leads nowhere")
	}
}

// resolves reports whether the schema has a part at a JSON pointer without its first slash.
func (c *schemaCheck) resolves(pointer string) bool {
	value := c.root
	for step := range strings.SplitSeq(pointer, "/") {
		step = unescapePointer.Replace(step)
		switch parent := value.(type) {
		case map[string]any:
			part, ok := parent[step]
			if !ok {
				return false
			}
			value = part
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(parent) {
				return false
			}
			value = parent[i]
		default:
			return false
		}
	}
	return true
}

var (
	unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")
	escapePointer   = strings.NewReplacer("~", "~0", "/", "~1")
)
