package session

import (
	"bytes"
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
}

// Handling is which callbacks a caller answers.
type Handling struct {
	// Methods are JSON-RPC methods and event types.
	Methods []string
	// HookTypes are the hooks that are of interest; none for all.
	HookTypes []string
}

// handles reports whether a callback is answered.
func (h Handling) handles(p *callback.Pending) bool {
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
			return nil, clash(t.Name, at)
		}
		tools = append(tools, Tool{Name: t.Name, JSON: e})
	}
	return tools, nil
}

func clash(name, field string) error {
	return fault.New(fault.ToolNameClash, "the session has a tool named %q already", name).WithField(field).With("tool", name)
}

// toolsJSON is the array of tools.
func toolsJSON(tools []Tool) json.RawMessage {
	out := []byte{'['}
	for i, t := range tools {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, t.JSON...)
	}
	return append(out, ']')
}

// union is the tools the CLI is to know: the session's, then each participant's in the
// order they came. The caller holds mu.
func (s *Session) union() []Tool {
	tools := slices.Clone(s.tools)
	for _, p := range s.participants {
		tools = append(tools, p.tools...)
	}
	return tools
}

// checkClash refuses tools whose name the session or another participant has. The
// caller holds mu.
func (s *Session) checkClash(tools []Tool, except *Participant, field string) error {
	for i, t := range tools {
		taken := slices.ContainsFunc(s.tools, func(o Tool) bool { return o.Name == t.Name })
		for _, p := range s.participants {
			if p != except && slices.ContainsFunc(p.tools, func(o Tool) bool { return o.Name == t.Name }) {
				taken = true
			}
		}
		if taken {
			return clash(t.Name, fmt.Sprintf("%s[%d].name", field, i))
		}
	}
	return nil
}

// effective is the whole configuration the CLI is to have: what the session was given,
// the union of tools, and every switch that anybody needs. A warm resume takes all of
// it, since what is left out is withdrawn; a cold one too, since the CLI keeps nothing.
// In a turn whose headers replace the provider's, the provider has none. The caller holds mu.
func (s *Session) effective() jsonobj.Object {
	o := s.config.Clone()
	if provider, err := jsonobj.Parse(o.Get("provider")); s.override && err == nil {
		provider.Set("headers", json.RawMessage("{}"))
		o.Set("provider", provider.JSON())
	}
	if tools := s.union(); len(tools) > 0 || o.Get("tools") != nil || s.loadedOnce {
		o.Set("tools", toolsJSON(tools))
	}
	if commands := s.commandsJSON(); commands != nil {
		o.Set("commands", commands)
	}
	o.SetBool("requestPermission", true)
	for _, name := range callback.Switches() {
		if s.wants(name) {
			o.SetBool(name, true)
		}
	}
	return o
}

// wants reports whether a switch has to be on. The caller holds mu.
func (s *Session) wants(name string) bool {
	if s.config.Bool(name) || s.handling.wants(name) {
		return true
	}
	return slices.ContainsFunc(s.participants, func(p *Participant) bool { return p.handling.wants(name) })
}

// wantsMethod reports whether anybody handles a method or event type. The caller holds mu.
func (s *Session) wantsMethod(method string) bool {
	return slices.Contains(s.handling.Methods, method) ||
		method == callback.CommandQueued && len(s.participantCommands()) > 0 ||
		slices.ContainsFunc(s.participants, func(p *Participant) bool { return slices.Contains(p.handling.Methods, method) })
}

func (h Handling) wants(name string) bool {
	return slices.ContainsFunc(h.Methods, func(m string) bool { return callback.SwitchFor(m) == name })
}

// switches is the state of all that takes a warm resume to change, to see whether it did:
// the switches and the participants' commands. The caller holds mu.
func (s *Session) switches() string {
	var b bytes.Buffer
	for _, name := range s.switchNames {
		if s.wants(name) {
			b.WriteString(name)
			b.WriteByte(' ')
		}
	}
	b.Write(s.commandsJSON())
	return b.String()
}
