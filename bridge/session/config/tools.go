package config

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// Tool is a tool as its caller declared it.
type Tool struct {
	Name string
	JSON json.RawMessage
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

// toolName is what the CLI accepts.
var toolName = regexp.MustCompile(`^[a-zA-Z0-9_-]+$`)

// ParseTools checks tools given as a JSON array; field names it in errors.
func ParseTools(array json.RawMessage, field string) ([]Tool, error) {
	if len(array) == 0 || string(array) == "null" {
		return nil, nil
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(array, &elements); err != nil {
		return nil, fault.New(fault.InvalidField, "tools: not an array").WithField(field)
	}
	tools := make([]Tool, 0, len(elements))
	for i, e := range elements {
		var t struct {
			Name string `json:"name"`
		}
		at := fmt.Sprintf("%s[%d].name", field, i)
		if err := json.Unmarshal(e, &t); err != nil || !toolName.MatchString(t.Name) {
			return nil, fault.New(fault.ToolNameInvalid, "tool name %q does not match %s", t.Name, toolName).WithField(at)
		}
		if slices.ContainsFunc(tools, func(o Tool) bool { return o.Name == t.Name }) {
			return nil, ToolClash(t.Name, at)
		}
		tools = append(tools, Tool{Name: t.Name, JSON: e})
	}
	return tools, nil
}

// ToolClash is the error for a tool whose name is taken; field names it.
func ToolClash(name, field string) error {
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

// ToolsOf are tools that were declared so.
func ToolsOf(texts []json.RawMessage) (out []Tool) {
	for _, text := range texts {
		var t struct{ Name string }
		if json.Unmarshal(text, &t) == nil {
			out = append(out, Tool{Name: t.Name, JSON: text})
		}
	}
	return out
}
