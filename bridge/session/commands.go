package session

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
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
			return nil, commandClash(c.Name, at)
		}
		commands = append(commands, Command{Name: c.Name, JSON: e})
	}
	return commands, nil
}

func commandClash(name, field string) error {
	return fault.New(fault.CommandNameClash, "the session has a command named %q already", name).WithField(field).With("command", name)
}

// ownCommands are those the session was given. The caller holds mu.
func (s *Session) ownCommands() []Command {
	commands, _ := ParseCommands(s.config.Get("commands"), "") // what is not understood clashes with nothing
	return commands
}

// checkCommands refuses commands whose name the session or another participant has. The
// caller holds mu.
func (s *Session) checkCommands(commands []Command, except *Participant, field string) error {
	for i, c := range commands {
		named := func(o Command) bool { return o.Name == c.Name }
		taken := slices.ContainsFunc(s.ownCommands(), named)
		for _, p := range s.participants {
			taken = taken || p != except && slices.ContainsFunc(p.commands, named)
		}
		if taken {
			return commandClash(c.Name, fmt.Sprintf("%s[%d].name", field, i))
		}
	}
	return nil
}

// participantCommands are the commands of all participants. The caller holds mu.
func (s *Session) participantCommands() (all []Command) {
	for _, p := range s.participants {
		all = append(all, p.commands...)
	}
	return all
}

// commandsJSON is the array of the session's commands and the participants'; nil when
// there is nothing to add to the session's own. The caller holds mu.
func (s *Session) commandsJSON() json.RawMessage {
	more := s.participantCommands()
	if len(more) == 0 {
		return nil
	}
	var all []json.RawMessage
	_ = json.Unmarshal(s.config.Get("commands"), &all) // the CLI refuses what is no array
	for _, c := range more {
		all = append(all, c.JSON)
	}
	array, _ := json.Marshal(all) // it has been parsed
	return array
}

// commandOwner is the participant whose command is given, or nil. The caller holds mu.
func (s *Session) commandOwner(p *callback.Pending) *Participant {
	if p.Command == "" {
		return nil
	}
	for _, part := range s.participants {
		if slices.ContainsFunc(part.commands, func(c Command) bool { return c.Name == p.Command }) {
			return part
		}
	}
	return nil
}
