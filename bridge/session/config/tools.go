package config

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
)

// Tool is a tool as its caller declared it.
type Tool struct {
	Name string
	JSON json.RawMessage
	// Overrides reports that the tool replaces the CLI's own tool of its name.
	Overrides bool
}

// Handling is which callbacks a caller answers.
type Handling struct {
	// Methods are JSON-RPC methods and event types.
	Methods []string
	// HookTypes are the hooks that are of interest; none for all.
	HookTypes []string
}

// Handles reports whether a callback is answered.
func (h Handling) Handles(p *callback.Pending) bool {
	return slices.Contains(h.Methods, p.Kind.Method) &&
		(p.Hook == "" || len(h.HookTypes) == 0 || slices.Contains(h.HookTypes, p.Hook))
}

// toolName is what the CLI and the model providers accept: the CLI accepts names of any length, and a provider
// rejects every request of a turn that has a longer one.
var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)

// AreTools reports whether a value is an array of objects with names, which ParseTools reads. The CLI refuses others.
func AreTools(value json.RawMessage) bool {
	var tools []struct{ Name *string }
	if json.Unmarshal(value, &tools) != nil || tools == nil {
		return false
	}
	return !slices.ContainsFunc(tools, func(t struct{ Name *string }) bool { return t.Name == nil })
}

// ParseTools checks tools given as a JSON array; field names it in errors. It refuses declarations that the CLI
// accepts and then does not offer to the model, or with which every turn fails.
func ParseTools(array json.RawMessage, field string) ([]Tool, error) {
	elements, err := elementsOf(array, field)
	if err != nil {
		return nil, err
	}
	tools := make([]Tool, 0, len(elements))
	for i, e := range elements {
		at := fmt.Sprintf("%s[%d]", field, i)
		tool := toolOf(e)
		if !toolName.MatchString(tool.Name) {
			return nil, fault.New(fault.ToolNameInvalid, "tool name %q does not match %s", tool.Name, toolName).
				WithField(at + ".name")
		}
		if slices.ContainsFunc(tools, func(o Tool) bool { return o.Name == tool.Name }) {
			return nil, ToolClash(tool.Name, at+".name")
		}
		if err := checkParameters(e, at+".parameters_json"); err != nil {
			return nil, err
		}
		tools = append(tools, tool)
	}
	return tools, nil
}

// ToolsAsGiven returns tools given as a JSON array without a check, for callers who want the CLI's own errors.
func ToolsAsGiven(array json.RawMessage) []Tool {
	var elements []json.RawMessage
	_ = json.Unmarshal(array, &elements) // the CLI ignores what is no array
	return ToolsOf(elements)
}

// ToolsOf returns tools that were declared so. A tool whose name is no string has the name "".
func ToolsOf(texts []json.RawMessage) (out []Tool) {
	for _, text := range texts {
		out = append(out, toolOf(text))
	}
	return out
}

// toolOf reads a declaration of a tool as far as it can be read.
func toolOf(text json.RawMessage) Tool {
	declared, _ := jsonobj.Parse(text) // the CLI refuses what is no object
	return Tool{Name: declared.String("name"), JSON: text, Overrides: declared.Bool("overridesBuiltInTool")}
}

// checkParameters checks the schema of a tool's arguments.
func checkParameters(tool json.RawMessage, field string) error {
	declared, err := jsonobj.Parse(tool)
	if err != nil {
		return fault.New(fault.InvalidField, "the tool is not a JSON object").WithField(field)
	}
	schema := declared.Get("parameters")
	if schema == nil {
		return nil
	}
	if root, err := jsonobj.Parse(schema); err != nil || root.String("type") != "object" {
		return fault.New(fault.InvalidField,
			`the CLI does not offer a tool to the model unless its schema is a JSON object with "type": "object"`).
			WithField(field)
	}
	return checkSchema(schema, field)
}

// ToolClash is the error for a tool whose name is taken; field names it.
func ToolClash(name, field string) *fault.Error {
	return fault.New(fault.ToolNameConflict, "the session has a tool named %q already", name).WithField(field).With("tool", name)
}

// ToolsJSON is the array of tools.
func ToolsJSON(tools []Tool) json.RawMessage {
	out := []byte{'['}
	for i, t := range tools {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, t.JSON...)
	}
	return append(out, ']')
}

// Wants reports whether a switch of the configuration has to be on for the handled callbacks.
func (h Handling) Wants(name string) bool {
	return slices.ContainsFunc(h.Methods, func(m string) bool { return callback.SwitchFor(m) == name })
}

// ToolTexts are the tools as they were declared.
func ToolTexts(tools []Tool) (out []json.RawMessage) {
	for _, t := range tools {
		out = append(out, t.JSON)
	}
	return out
}
