package config

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
)

// Command is a slash command as its caller declared it.
type Command struct {
	Name string
	JSON json.RawMessage
}

// ParseCommands checks commands given as a JSON array; field names it in errors. The CLI compares the names of commands
// without regard to case.
func ParseCommands(array json.RawMessage, field string) ([]Command, error) {
	elements, err := elementsOf(array, field)
	if err != nil {
		return nil, err
	}
	commands := make([]Command, 0, len(elements))
	for i, e := range elements {
		declared, _ := jsonobj.Parse(e) // the CLI refuses what is no object
		name, at := declared.String("name"), fmt.Sprintf("%s[%d].name", field, i)
		if name == "" || strings.ContainsFunc(name, notInCommand) {
			return nil, fault.New(fault.InvalidField,
				"command name %q is empty or has spaces, slashes or control characters", name).WithField(at)
		}
		if slices.ContainsFunc(commands, func(o Command) bool { return o.Is(name) }) {
			return nil, CommandClash(name, at)
		}
		commands = append(commands, Command{Name: name, JSON: e})
	}
	return commands, nil
}

// CommandsAsGiven returns commands given as a JSON array without a check. A command whose name is no string has the
// name "".
func CommandsAsGiven(array json.RawMessage) (commands []Command) {
	var elements []json.RawMessage
	_ = json.Unmarshal(array, &elements) // the CLI refuses what is no array
	for _, e := range elements {
		declared, _ := jsonobj.Parse(e) // the CLI refuses what is no object
		commands = append(commands, Command{Name: declared.String("name"), JSON: e})
	}
	return commands
}

// notInCommand reports whether a command's name cannot have a character: the CLI never finds such a command, or takes
// what follows the character for arguments.
func notInCommand(r rune) bool { return r == '/' || unicode.IsSpace(r) || unicode.IsControl(r) }

// Is reports whether the command has a name.
func (c Command) Is(name string) bool { return strings.EqualFold(c.Name, name) }

// CommandClash is the error for a command whose name is taken; field names it.
func CommandClash(name, field string) *fault.Error {
	return fault.New(fault.CommandNameConflict, "the session has a command named %q already", name).WithField(field).With("command", name)
}
