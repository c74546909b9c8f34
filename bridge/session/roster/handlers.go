package roster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
)

// Values of Pending.For that name no participant.
const (
	// Everybody stands for all participants that handle the kind.
	Everybody = ""
	// Itself: callers that answer for the session, by Resolve.
	Itself = "."
)

// CheckTools refuses tools whose name the session, which has own, or another participant has.
func (r *Roster) CheckTools(tools, own []config.Tool, except *Participant, field string) error {
	for i, t := range tools {
		named := func(o config.Tool) bool { return o.Name == t.Name }
		holder := r.other(except, func(p *Participant) bool { return slices.ContainsFunc(p.Tools, named) })
		if holder != nil || slices.ContainsFunc(own, named) {
			return withHolder(config.ToolClash(t.Name, fmt.Sprintf("%s[%d].name", field, i)), holder)
		}
	}
	return nil
}

// CheckCommands refuses commands whose name the session, which has own, or another participant
// has.
func (r *Roster) CheckCommands(commands, own []config.Command, except *Participant, field string) error {
	for i, c := range commands {
		named := func(o config.Command) bool { return o.Is(c.Name) }
		holder := r.other(except, func(p *Participant) bool { return slices.ContainsFunc(p.Commands, named) })
		if holder != nil || slices.ContainsFunc(own, named) {
			return withHolder(config.CommandClash(c.Name, fmt.Sprintf("%s[%d].name", field, i)), holder)
		}
	}
	return nil
}

// other returns the first participant but one of which f is true, or nil.
func (r *Roster) other(except *Participant, f func(*Participant) bool) *Participant {
	for _, p := range r.list {
		if p != except && f(p) {
			return p
		}
	}
	return nil
}

// withHolder adds to the error about a name which participant has it, and when it is free if the participant does not
// return. A nil holder adds nothing.
func withHolder(err *fault.Error, holder *Participant) error {
	if holder == nil {
		return err
	}
	err = err.With("holder", cmp.Or(holder.Name, holder.ID))
	if holder.Connected {
		return err
	}
	since, free := holder.LostAt.UTC().Format(time.RFC3339), holder.LostAt.Add(holder.Grace).UTC().Format(time.RFC3339)
	return err.With("disconnected_since", since).With("free_at", free).WithRemedy(
		"participant %q has had no connection since %s: the name is free at %s, or when Leave is called with its token",
		cmp.Or(holder.Name, holder.ID), since, free)
}

// Tools are the tools the CLI is to know: the session's own, then each participant's in the
// order they came.
func (r *Roster) Tools(own []config.Tool) []config.Tool {
	tools := slices.Clone(own)
	for _, p := range r.list {
		tools = append(tools, p.Tools...)
	}
	return tools
}

// CommandsJSON returns the array of the session's own commands and the participants' commands. It returns nil
// if the participants have none.
func (r *Roster) CommandsJSON(own json.RawMessage) json.RawMessage {
	if !r.hasCommands() {
		return nil
	}
	var all []json.RawMessage
	_ = json.Unmarshal(own, &all) // the CLI refuses what is no array
	for _, p := range r.list {
		for _, c := range p.Commands {
			all = append(all, c.JSON)
		}
	}
	array, _ := json.Marshal(all) // it has been parsed
	return array
}

func (r *Roster) hasCommands() bool {
	return r.Any(func(p *Participant) bool { return len(p.Commands) > 0 })
}

// Wants reports whether a switch of the configuration has to be on for a participant.
func (r *Roster) Wants(name string) bool {
	return r.Any(func(p *Participant) bool { return p.Handling.Wants(name) })
}

// Handles reports whether a participant handles a method or event type.
func (r *Roster) Handles(method string) bool {
	return method == callback.CommandQueued && r.hasCommands() ||
		r.Any(func(p *Participant) bool { return slices.Contains(p.Handling.Methods, method) })
}

// Answers reports whether a participant who is connected handles a method. One whose place is
// only kept does not count: the CLI would wait for it with the session half open.
func (r *Roster) Answers(method string) bool {
	return r.Any(func(p *Participant) bool { return p.Connected && slices.Contains(p.Handling.Methods, method) })
}

// Handlers returns the participants who handle a callback of a session with own configuration,
// and whether the callback is handled: the session's own handlers are the callers of Resolve.
func (r *Roster) Handlers(p *callback.Pending, own *config.State) (to []string, handled bool) {
	if owner := r.CommandOwner(p); owner != nil {
		return []string{owner.ID}, true
	}
	named := func(t config.Tool) bool { return t.Name == p.Tool }
	isTool := p.Kind.Method == callback.ToolRequested
	shared := isTool && slices.ContainsFunc(own.Tools, named)
	for _, part := range r.list {
		if p.For != Everybody && p.For != part.ID {
			continue
		}
		bound := p.For == part.ID && p.Kind.Bound
		if isTool && (shared || slices.ContainsFunc(part.Tools, named)) || !isTool && (bound || part.Handling.Handles(p)) {
			to = append(to, part.ID)
		}
	}
	return to, shared || len(to) > 0 || (p.For == Everybody || p.For == Itself) && own.Handling.Handles(p)
}

// CommandOwner returns the participant that declared the command of a callback, or nil. Only that participant receives the
// callback.
func (r *Roster) CommandOwner(p *callback.Pending) *Participant {
	if p.Command == "" {
		return nil
	}
	for _, part := range r.list {
		if slices.ContainsFunc(part.Commands, func(c config.Command) bool { return c.Is(p.Command) }) {
			return part
		}
	}
	return nil
}

// HookOrder returns the handlers of a hook in the order of the chain: the session's own handlers first.
func (r *Roster) HookOrder(hook string, own config.Handling) (order []string) {
	probe := &callback.Pending{Kind: callback.ForRequest(callback.HooksInvoke), Hook: hook}
	if own.Handles(probe) {
		order = append(order, Itself)
	}
	for _, p := range r.list {
		if p.Handling.Handles(probe) {
			order = append(order, p.ID)
		}
	}
	return order
}

// TellAsked tells participants that a request is put to them.
func (r *Roster) TellAsked(ids []string) {
	for _, p := range r.list {
		if p.Asked != nil && slices.Contains(ids, p.ID) {
			p.Asked()
		}
	}
}

// CanvasIDs are the ids of the canvases that a participant declares.
func (p *Participant) CanvasIDs() (ids []string) {
	var canvases []struct{ ID string }
	_ = json.Unmarshal(p.Own.Get("canvases"), &canvases) // it was made from a message
	for _, c := range canvases {
		ids = append(ids, c.ID)
	}
	return ids
}
