package session

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
)

// checkCommands refuses commands whose name the session or another participant has. The
// caller holds mu.
func (s *Session) checkCommands(commands []Command, except *Participant, field string) error {
	for i, c := range commands {
		named := func(o Command) bool { return o.Name == c.Name }
		taken := slices.ContainsFunc(s.config.Commands(), named)
		for _, p := range s.participants {
			taken = taken || p != except && slices.ContainsFunc(p.commands, named)
		}
		if taken {
			return config.CommandClash(c.Name, fmt.Sprintf("%s[%d].name", field, i))
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
	_ = json.Unmarshal(s.config.Object.Get("commands"), &all) // the CLI refuses what is no array
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
