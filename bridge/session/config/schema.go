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
	c := schemaCheck{root: schema, objects: map[string]map[string]json.RawMessage{}}
	c.schema(schema)
	if c.problem == "" {
		return nil
	}
	return fault.New(fault.InvalidField, "not a JSON Schema: at %q, %s", "#"+c.at, c.problem).WithField(field)
}

// schemaCheck finds the first problem of a schema. Its time and memory grow with the schema's length and depth alone,
// whatever is in the schema.
type schemaCheck struct {
	root json.RawMessage
	// objects are the members of the objects and arrays that references lead through, by JSON pointer. With them, a
	// schema with many references is read once and not once for each.
	objects map[string]map[string]json.RawMessage
	// path leads to the part that is being checked.
	path []string
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

func (c *schemaCheck) fail(problem string) {
	if c.problem != "" {
		return
	}
	c.problem = problem
	for _, name := range c.path {
		c.at += "/" + escapePointer.Replace(name)
	}
}

// under checks a part of the current part.
func (c *schemaCheck) under(name string, check func()) {
	c.path = append(c.path, name)
	check()
	c.path = c.path[:len(c.path)-1]
}

// schema checks a schema.
func (c *schemaCheck) schema(text json.RawMessage) {
	if s := string(text); s == "true" || s == "false" {
		return
	}
	c.members(text, "there is neither an object nor a boolean", func(m jsonobj.Member) { c.keyword(keywords[m.Key], m.Value) })
}

// members checks the members of an object, up to the first problem.
func (c *schemaCheck) members(text json.RawMessage, otherwise string, check func(jsonobj.Member)) {
	members, err := jsonobj.Parse(text)
	if err != nil {
		c.fail(otherwise)
	}
	for _, m := range members {
		if c.problem != "" {
			return
		}
		c.under(m.Key, func() { check(m) })
	}
}

// keyword checks the value of a keyword.
func (c *schemaCheck) keyword(form keyword, value json.RawMessage) {
	switch form {
	case oneSchema:
		c.schema(value)
	case schemaList:
		c.list(value)
	case oneOrList:
		if len(value) > 0 && value[0] == '[' {
			c.list(value)
		} else {
			c.schema(value)
		}
	case schemaMap:
		c.members(value, "there is no object of schemas", func(m jsonobj.Member) { c.schema(m.Value) })
	case stringList:
		var list []string
		if string(value) == "null" || json.Unmarshal(value, &list) != nil {
			c.fail("there is no array of strings")
		}
	case anyList:
		var list []json.RawMessage
		if string(value) == "null" || json.Unmarshal(value, &list) != nil {
			c.fail("there is no array")
		}
	case typeName:
		c.types(value)
	case reference:
		c.reference(value)
	}
}

func (c *schemaCheck) list(value json.RawMessage) {
	var list []json.RawMessage
	if json.Unmarshal(value, &list) != nil || len(list) == 0 {
		c.fail("there is no array of schemas")
	}
	for i, schema := range list {
		if c.problem != "" {
			return
		}
		c.under(strconv.Itoa(i), func() { c.schema(schema) })
	}
}

func (c *schemaCheck) types(value json.RawMessage) {
	list := []string{jsonobj.Text(value)}
	if len(value) > 0 && value[0] == '[' && json.Unmarshal(value, &list) != nil {
		list = nil
	}
	unknown := func(name string) bool { return !slices.Contains(typeNames, name) }
	if len(list) == 0 || slices.ContainsFunc(list, unknown) {
		c.fail("there is no type among " + strings.Join(typeNames, ", "))
	}
}

// reference checks that a pointer into the schema leads somewhere. It ignores other references: a reader may know the
// anchor or the other schema.
func (c *schemaCheck) reference(value json.RawMessage) {
	ref := jsonobj.Text(value)
	if ref == "" {
		c.fail("there is no reference")
		return
	}
	pointer, local := strings.CutPrefix(ref, "#/")
	if !local {
		return
	}
	if path, err := url.PathUnescape(pointer); err != nil || !c.resolves("/"+path) {
		c.fail("the reference " + strconv.Quote(ref) + " leads nowhere")
	}
}

// resolves reports whether the schema has a part at a JSON pointer.
func (c *schemaCheck) resolves(pointer string) bool {
	value := c.root
	for at := 0; at < len(pointer); {
		members, known := c.objects[pointer[:at]]
		if !known {
			members = membersOf(value)
			c.objects[pointer[:at]] = members
		}
		step, _, _ := strings.Cut(pointer[at+1:], "/")
		if value = members[unescapePointer.Replace(step)]; value == nil {
			return false
		}
		at += 1 + len(step)
	}
	return true
}

// membersOf returns the members of a JSON object, or the elements of an array by their index.
func membersOf(value json.RawMessage) map[string]json.RawMessage {
	members := map[string]json.RawMessage{}
	var list []json.RawMessage
	if json.Unmarshal(value, &list) == nil {
		for i, element := range list {
			members[strconv.Itoa(i)] = element
		}
		return members
	}
	object, _ := jsonobj.Parse(value) // anything else has no parts
	for _, m := range object {
		members[m.Key] = m.Value
	}
	return members
}

var (
	unescapePointer = strings.NewReplacer("~1", "/", "~0", "~")
	escapePointer   = strings.NewReplacer("~", "~0", "/", "~1")
)
