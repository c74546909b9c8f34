package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// Command is a slash command as its caller declared it.
type Command struct {
	Name string
	JSON json.RawMessage
}

// ParseCommands checks commands given as a JSON array; field names it in errors.
func ParseCommands(array json.RawMessage, field string) ([]Command, error) {
	if len(array) == 0 || string(array) == "null" {
		return nil, nil
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(array, &elements); err != nil {
		return nil, fault.New(fault.InvalidField, "commands: not an array").WithField(field)
	}
	commands := make([]Command, 0, len(elements))
	for i, e := range elements {
		var c struct {
			Name string `json:"name"`
		}
		at := fmt.Sprintf("%s[%d].name", field, i)
		if err := json.Unmarshal(e, &c); err != nil || c.Name == "" || strings.ContainsAny(c.Name, " \t\r\n/") {
			return nil, fault.New(fault.InvalidField, "command name %q is empty or has spaces or slashes", c.Name).WithField(at)
		}
		if slices.ContainsFunc(commands, func(o Command) bool { return o.Name == c.Name }) {
			return nil, CommandClash(c.Name, at)
		}
		commands = append(commands, Command{Name: c.Name, JSON: e})
	}
	return commands, nil
}

// CommandClash is the error for a command whose name is taken; field names it.
func CommandClash(name, field string) error {
	return fault.New(fault.CommandNameConflict, "the session has a command named %q already", name).WithField(field).With("command", name)
}
