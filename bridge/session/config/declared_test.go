package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
)

// wantRefused checks that an error names a field and has a reason; an empty field means that there is no error.
func wantRefused(t *testing.T, name string, err error, reason fault.Reason, field string) {
	t.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	switch {
	case field == "" && err != nil:
		t.Errorf("%s: %v, want no error", name, err)
	case field != "" && (!ok || f.Field != field || f.Reason != reason || f.Message == ""):
		t.Errorf("%s: %v, want %v about %q", name, err, reason, field)
	}
}

// The CLI accepts each of these tools. It does not offer the refused ones to the model, or the model's provider rejects
// every request that has them.
func TestToolDeclarations(t *testing.T) {
	t.Parallel()
	schema := func(text string) string { return `{"name":"a","description":"d","parameters":` + text + `}` }
	const name, parameters = "tools[0].name", "tools[0].parameters_json"
	for what, test := range map[string]struct {
		tool  string
		field string
	}{
		"no schema":              {`{"name":"a"}`, ""},
		"64 letters":             {`{"name":"` + strings.Repeat("x", 64) + `"}`, ""},
		"65 letters":             {`{"name":"` + strings.Repeat("x", 65) + `"}`, name},
		"no name":                {`{"description":"d"}`, name},
		"an empty name":          {`{"name":""}`, name},
		"a number as the name":   {`{"name":7}`, name},
		"a space":                {`{"name":"a b"}`, name},
		"a letter with accent":   {`{"name":"é"}`, name},
		"no object":              {`"a"`, name},
		"an object":              {schema(`{"type":"object"}`), ""},
		"null":                   {schema(`null`), parameters},
		"an empty object":        {schema(`{}`), parameters},
		"a list":                 {schema(`[]`), parameters},
		"a string":               {schema(`"x"`), parameters},
		"true":                   {schema(`true`), parameters},
		"no type":                {schema(`{"properties":{}}`), parameters},
		"a list of types":        {schema(`{"type":["object"]}`), parameters},
		"arrays":                 {schema(`{"type":"array"}`), parameters},
		"alternatives":           {schema(`{"oneOf":[{"type":"object"}]}`), parameters},
		"a list of properties":   {schema(`{"type":"object","properties":[]}`), parameters},
		"a string as a property": {schema(`{"type":"object","properties":{"x":"string"}}`), parameters},
		"null as a property":     {schema(`{"type":"object","properties":{"x":null}}`), parameters},
		"true as a property":     {schema(`{"type":"object","properties":{"x":true}}`), ""},
		"an unknown type":        {schema(`{"type":"object","properties":{"x":{"type":"text"}}}`), parameters},
		"several types":          {schema(`{"type":"object","properties":{"x":{"type":["string","null"]}}}`), ""},
		"an unknown one of them": {schema(`{"type":"object","properties":{"x":{"type":["string","nil"]}}}`), parameters},
		"no types":               {schema(`{"type":"object","properties":{"x":{"type":[]}}}`), parameters},
		"required, no list":      {schema(`{"type":"object","required":"x"}`), parameters},
		"required, null":         {schema(`{"type":"object","required":null}`), parameters},
		"required, undeclared":   {schema(`{"type":"object","required":["x"]}`), ""},
		"enum, no list":          {schema(`{"type":"object","properties":{"x":{"enum":"a"}}}`), parameters},
		"a property named type":  {schema(`{"type":"object","properties":{"type":{"type":"string"}}}`), ""},
		"an annotation":          {schema(`{"type":"object","x-hint":7,"default":{"type":7}}`), ""},
		"a pattern of a dialect": {schema(`{"type":"object","properties":{"x":{"pattern":"^(?!a)"}}}`), ""},
		"items":                  {schema(`{"type":"object","properties":{"x":{"items":{"type":"text"}}}}`), parameters},
		"items, a list":          {schema(`{"type":"object","properties":{"x":{"items":[{"type":"string"}]}}}`), ""},
		"no alternatives":        {schema(`{"type":"object","anyOf":[]}`), parameters},
		"a wrong alternative":    {schema(`{"type":"object","anyOf":[{"type":"object"},7]}`), parameters},
		"a reference":            {schema(`{"type":"object","$defs":{"a/b":{}},"properties":{"x":{"$ref":"#/$defs/a~1b"}}}`), ""},
		"a reference to itself":  {schema(`{"type":"object","properties":{"x":{"$ref":"#"}}}`), ""},
		"a broken reference":     {schema(`{"type":"object","properties":{"x":{"$ref":"#/$defs/none"}}}`), parameters},
		"a reference into lists": {schema(`{"type":"object","allOf":[{}],"properties":{"x":{"$ref":"#/allOf/0"}}}`), ""},
		"a reference past them":  {schema(`{"type":"object","allOf":[{}],"properties":{"x":{"$ref":"#/allOf/1"}}}`), parameters},
		"a reference elsewhere":  {schema(`{"type":"object","properties":{"x":{"$ref":"https://example.com/s"}}}`), ""},
		"a number as reference":  {schema(`{"type":"object","properties":{"x":{"$ref":7}}}`), parameters},
	} {
		_, err := ParseTools([]byte("["+test.tool+"]"), "tools")
		reason := fault.InvalidField
		if test.field == name {
			reason = fault.ToolNameInvalid
		}
		wantRefused(t, what, err, reason, test.field)
		if given := ToolsAsGiven([]byte("[" + test.tool + "]")); len(given) != 1 || string(given[0].JSON) != test.tool {
			t.Errorf("%s: given as %s, want the declaration itself", what, ToolTexts(given))
		}
	}
	_, err := ParseTools([]byte(`{"name":"a"}`), "tools")
	wantRefused(t, "no list", err, fault.InvalidField, "tools")
}

// The CLI accepts each of these declarations, and ignores the refused ones or fails with them later.
func TestDeclarations(t *testing.T) {
	t.Parallel()
	for what, test := range map[string]struct {
		config string
		reason fault.Reason
		field  string
	}{
		"nothing":                  {`{}`, 0, ""},
		"null":                     {`{"commands":null,"customAgents":null,"canvases":null}`, 0, ""},
		"a command":                {`{"commands":[{"name":"deploy"}]}`, 0, ""},
		"commands that are none":   {`{"commands":{"a":1}}`, fault.InvalidField, "c.commands"},
		"an empty command":         {`{"commands":[{"name":""}]}`, fault.InvalidField, "c.commands[0].name"},
		"a command with a slash":   {`{"commands":[{"name":"/a"}]}`, fault.InvalidField, "c.commands[0].name"},
		"a command with a space":   {`{"commands":[{"name":"a b"}]}`, fault.InvalidField, "c.commands[0].name"},
		"a command with a control": {`{"commands":[{"name":"a\u0000"}]}`, fault.InvalidField, "c.commands[0].name"},
		"commands that differ by case": {`{"commands":[{"name":"a"},{"name":"A"}]}`, fault.CommandNameConflict,
			"c.commands[1].name"},
		"an agent":              {`{"customAgents":[{"name":"a","prompt":""}]}`, 0, ""},
		"agents that are none":  {`{"customAgents":"x"}`, fault.InvalidField, "c.custom_agents"},
		"a string as an agent":  {`{"customAgents":["x"]}`, fault.InvalidField, "c.custom_agents[0]"},
		"an empty agent":        {`{"customAgents":[{"name":"","prompt":"p"}]}`, fault.InvalidField, "c.custom_agents[0].name"},
		"a blank agent":         {`{"customAgents":[{"name":" ","prompt":"p"}]}`, fault.InvalidField, "c.custom_agents[0].name"},
		"an agent's name twice": {`{"customAgents":[{"name":"a","prompt":"p"},{"name":"a","prompt":"q"}]}`, fault.InvalidField, "c.custom_agents[1].name"},
		"no instructions":       {`{"customAgents":[{"name":"a"}]}`, fault.InvalidField, "c.custom_agents[0].prompt"},
		"a canvas":              {`{"canvases":[{"id":"a","inputSchema":{},"actions":[{"name":"x"},{"name":"y"}]}]}`, 0, ""},
		"an empty canvas":       {`{"canvases":[{"id":""}]}`, fault.InvalidField, "c.canvases[0].id"},
		"a canvas twice":        {`{"canvases":[{"id":"a"},{"id":"a"}]}`, fault.InvalidField, "c.canvases[1].id"},
		"a canvas's schema":     {`{"canvases":[{"id":"a","inputSchema":{"type":"x"}}]}`, fault.InvalidField, "c.canvases[0].input_schema_json"},
		"an empty action":       {`{"canvases":[{"id":"a","actions":[{"name":""}]}]}`, fault.InvalidField, "c.canvases[0].actions[0].name"},
		"an action twice":       {`{"canvases":[{"id":"a","actions":[{"name":"x"},{"name":"x"}]}]}`, fault.InvalidField, "c.canvases[0].actions[1].name"},
		"an action's schema":    {`{"canvases":[{"id":"a","actions":[{"name":"x","inputSchema":[]}]}]}`, fault.InvalidField, "c.canvases[0].actions[0].input_schema_json"},
	} {
		o, err := jsonobj.Parse([]byte(test.config))
		if err != nil {
			t.Fatal(err)
		}
		wantRefused(t, what, CheckDeclared(o, "c."), test.reason, test.field)
	}
}

// Names of the CLI's own tools and commands are refused, unless a tool says that it overrides.
func TestBuiltIns(t *testing.T) {
	t.Parallel()
	names, err := NewBuiltIns([]byte(`{"tools":[{"name":"view"}]}`), []byte(`{"commands":[
		{"name":"compact","kind":"builtin"},{"name":"allow-all","kind":"builtin","aliases":["yolo"]},
		{"name":"mine","kind":"client"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for what, test := range map[string]struct {
		names    *BuiltIns
		tools    []Tool
		commands []Command
		reason   fault.Reason
		field    string
	}{
		"a tool":                {names, []Tool{{Name: "look"}}, nil, 0, ""},
		"the CLI's tool":        {names, []Tool{{Name: "look"}, {Name: "view"}}, nil, fault.ToolNameInvalid, "c.tools[1].name"},
		"an override":           {names, []Tool{{Name: "view", Overrides: true}}, nil, 0, ""},
		"another case":          {names, []Tool{{Name: "View"}}, nil, 0, ""},
		"a command":             {names, nil, []Command{{Name: "deploy"}}, 0, ""},
		"the CLI's command":     {names, nil, []Command{{Name: "Compact"}}, fault.InvalidField, "c.commands[0].name"},
		"its alias":             {names, nil, []Command{{Name: "yolo"}}, fault.InvalidField, "c.commands[0].name"},
		"a reserved command":    {names, nil, []Command{{Name: "help"}}, fault.InvalidField, "c.commands[0].name"},
		"another one's command": {names, nil, []Command{{Name: "mine"}}, 0, ""},
		"unknown names":         {nil, []Tool{{Name: "view"}}, []Command{{Name: "compact"}}, 0, ""},
	} {
		wantRefused(t, what, test.names.Check(test.tools, "c.tools", test.commands, "c.commands"), test.reason, test.field)
	}
	if _, err := NewBuiltIns([]byte(`[]`), []byte(`{}`)); fault.ReasonOf(err) != fault.CLIProtocolError {
		t.Errorf("an answer of another form: %v", err)
	}
}
