package session

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
)

// effective is the whole configuration that the CLI is to have: the session's own, the union of
// tools, and every switch that the session or a participant needs. A warm resume takes all of it,
// since it withdraws what it leaves out; a cold one too, since the CLI keeps nothing. In a turn whose
// headers replace the provider's, the provider has none. The caller holds the lock.
func (m *Participants) effective() jsonobj.Object {
	own := &m.s.settings.State
	o := own.Object.Clone()
	if provider, err := jsonobj.Parse(o.Get("provider")); m.s.sender.headersReplaced() && err == nil {
		provider.Set("headers", json.RawMessage("{}"))
		o.Set("provider", provider.JSON())
	}
	if tools := m.s.roster.Tools(own.Tools); len(tools) > 0 || o.Get("tools") != nil || m.received.toolsKnown {
		o.Set("tools", config.ToolsJSON(tools))
	}
	if commands := m.s.roster.CommandsJSON(own.Object.Get("commands")); commands != nil {
		o.Set("commands", commands)
	}
	o.SetBool("requestPermission", true)
	for _, name := range m.switchNames {
		if m.wants(name) {
			o.SetBool(name, true)
		}
	}
	return o
}

// wants reports whether a switch has to be on. The caller holds the lock.
func (m *Participants) wants(name string) bool {
	own := &m.s.settings.State
	return own.Object.Bool(name) || own.Handling.Wants(name) || m.s.roster.Wants(name) ||
		m.s.watched().Wants(name)
}

// wantsMethod reports whether the session or a participant handles a method or event type. The
// caller holds the lock.
func (m *Participants) wantsMethod(method string) bool {
	return slices.Contains(m.s.settings.State.Handling.Methods, method) || m.s.roster.Handles(method) ||
		slices.Contains(m.s.watched().Methods, method)
}

// switches is the state of all that takes a warm resume to change, to see whether it did: the
// switches and the participants' commands. The caller holds the lock.
func (m *Participants) switches() string {
	on := slices.DeleteFunc(slices.Clone(m.switchNames), func(name string) bool { return !m.wants(name) })
	return strings.Join(on, " ") + string(m.s.roster.CommandsJSON(m.s.settings.State.Object.Get("commands")))
}

// outdated reports whether the runtime was told of other tools or switches than are wanted now. The caller holds the lock.
func (m *Participants) outdated() bool {
	return m.switches() != m.received.switches || string(m.toolsJSON()) != string(m.received.tools)
}

// interests lists the event types that the CLI sends on request only, that are wanted, and that it
// was not asked for. The caller holds the lock.
func (m *Participants) interests() []string {
	types := slices.DeleteFunc(callback.Interests(), func(t string) bool { return !m.wantsMethod(t) })
	for _, t := range m.s.settings.State.Registered {
		if !slices.Contains(types, t) {
			types = append(types, t)
		}
	}
	return slices.DeleteFunc(types, func(t string) bool { return m.received.interests[t] })
}
