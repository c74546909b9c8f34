package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// BuiltIns are the names of the CLI's own tools and slash commands. It is immutable. A nil BuiltIns has no names.
type BuiltIns struct {
	tools    map[string]bool
	commands map[string]bool // in lower case
}

// reservedCommands are names of commands that CLI 1.0.102 reserves and does not list.
var reservedCommands = []string{"changelog", "exit", "help", "update", "version"}

// NewBuiltIns reads the CLI's answers to session.tools.getBuiltinDescriptors and session.commands.list.
func NewBuiltIns(tools, commands json.RawMessage) (*BuiltIns, error) {
	var t struct{ Tools []struct{ Name string } }
	if err := json.Unmarshal(tools, &t); err != nil {
		return nil, fault.Wrap(err, fault.CLIProtocolError, "the CLI's own tools")
	}
	var c struct {
		Commands []struct {
			Name, Kind string
			Aliases    []string
		}
	}
	if err := json.Unmarshal(commands, &c); err != nil {
		return nil, fault.Wrap(err, fault.CLIProtocolError, "the CLI's own commands")
	}
	b := &BuiltIns{tools: map[string]bool{}, commands: map[string]bool{}}
	for _, tool := range t.Tools {
		b.tools[tool.Name] = true
	}
	for _, name := range reservedCommands {
		b.commands[name] = true
	}
	for _, command := range c.Commands {
		if command.Kind == "builtin" {
			for _, name := range slices.Concat([]string{command.Name}, command.Aliases) {
				b.commands[strings.ToLower(name)] = true
			}
		}
	}
	return b, nil
}

// Check refuses tools with the name of a tool of the CLI that they do not override, and commands with the name of a
// command of the CLI. The CLI accepts both. It then fails every turn while such a tool is declared and its own tool is
// available, and never calls such a command. toolsAt and commandsAt name the lists in errors.
func (b *BuiltIns) Check(tools []Tool, toolsAt string, commands []Command, commandsAt string) error {
	if b == nil {
		return nil
	}
	for i, t := range tools {
		if b.tools[t.Name] && !t.Overrides {
			return fault.New(fault.ToolNameInvalid,
				"the CLI has a tool %q of its own: choose another name, or replace it with overrides_built_in_tool", t.Name).
				WithField(fmt.Sprintf("%s[%d].name", toolsAt, i)).With("tool", t.Name)
		}
	}
	for i, c := range commands {
		if b.commands[strings.ToLower(c.Name)] {
			return fault.New(fault.InvalidField, "the CLI has a command %q of its own: choose another name", c.Name).
				WithField(fmt.Sprintf("%s[%d].name", commandsAt, i)).With("command", c.Name)
		}
	}
	return nil
}
