package session

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
)

// effective is the whole configuration the CLI is to have: what the session was given,
// the union of tools, and every switch that anybody needs. A warm resume takes all of
// it, since what is left out is withdrawn; a cold one too, since the CLI keeps nothing.
// In a turn whose headers replace the provider's, the provider has none. The caller holds mu.
func (s *Session) effective() jsonobj.Object {
	o := s.config.Object.Clone()
	if provider, err := jsonobj.Parse(o.Get("provider")); s.sender.HeadersReplaced() && err == nil {
		provider.Set("headers", json.RawMessage("{}"))
		o.Set("provider", provider.JSON())
	}
	if tools := s.roster.Tools(s.config.Tools); len(tools) > 0 || o.Get("tools") != nil || s.synced.toolsKnown {
		o.Set("tools", config.ToolsJSON(tools))
	}
	if commands := s.roster.CommandsJSON(s.config.Object.Get("commands")); commands != nil {
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
	return s.config.Object.Bool(name) || s.config.Handling.Wants(name) || s.roster.Wants(name)
}

// wantsMethod reports whether a method or event type is handled. The caller holds mu.
func (s *Session) wantsMethod(method string) bool {
	return slices.Contains(s.config.Handling.Methods, method) || s.roster.Handles(method)
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
	b.Write(s.roster.CommandsJSON(s.config.Object.Get("commands")))
	return b.String()
}
