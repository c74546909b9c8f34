// Package config has the configuration of a session and its stored form. The bridge remembers the configuration
// because the CLI forgets it when it loads the session again.
//
// The package has no lock, clock or goroutine. The session guards a State by its mutex. Slices and objects in a
// State are replaced and never changed in place, so that a copy of a State can be restored later.
package config

import (
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
)

// GitHubToken is the member of a configuration with the token of a GitHub account, TokenProvider the
// one by which the CLI asks for a token.
const (
	GitHubToken   = "gitHubToken"
	TokenProvider = "gitHubTokenProviderRegistrationId"
)

// State is the configuration of a session, as its callers set it.
type State struct {
	// Object has the CLI's members, without the tools of participants and the switches.
	Object   jsonobj.Object
	Tools    []Tool
	Handling Handling
	// ProviderRef is the provider of the bridge's own configuration that Object began with.
	ProviderRef string
	// Labels are the session's labels. The CLI does not know them.
	Labels map[string]string
	// NodeLabels are the labels of the servers that can have the session. They do not change.
	NodeLabels map[string]string
	// Continues says that the agent is to continue turns that end with their runtime.
	Continues bool
	// Settings are the calls that are repeated after each load, in the order they were made.
	Settings []Setting
	// Missing are the paths of secrets that an earlier process had.
	Missing []string
	// Registered are the event types that callers want, by their handles. It is changed in
	// place.
	Registered map[string]string
}

// MaxSettings bounds the settings of a session.
const MaxSettings = 512

// Setting is a call of the CLI's that set something in the session.
type Setting struct {
	Key    string
	Method string
	Params jsonobj.Object
}

// Keep says which earlier settings a new one replaces.
type Keep struct {
	// Key names the setting; a new setting takes the place of an older one with its key.
	// "" keeps all.
	Key string
	// Merge adds the members of the new setting to the earlier ones.
	Merge bool
}

// Full reports whether there is no room for a setting with a key.
func (s *State) Full(key string) bool {
	return len(s.Settings) >= MaxSettings && (key == "" || s.setting(key) < 0)
}

func (s *State) setting(key string) int {
	return slices.IndexFunc(s.Settings, func(o Setting) bool { return key != "" && o.Key == key })
}

// Remember puts a setting at the end.
func (s *State) Remember(one Setting, merge bool) {
	i := s.setting(one.Key)
	if i >= 0 && merge {
		one.Params = s.Settings[i].Params.Merge(one.Params)
	}
	rest := slices.Clone(s.Settings)
	if i >= 0 {
		rest = slices.Delete(rest, i, i+1)
	}
	s.Settings = append(rest, one)
}

// Approve remembers settings that stand for an approval, while there is room, and reports
// whether it did.
func (s *State) Approve(settings []Setting) (changed bool) {
	for _, one := range settings {
		if len(s.Settings) < MaxSettings {
			s.Remember(one, false)
			changed = true
		}
	}
	return changed
}

// Forget drops what a CLI forgets of a session that was disconnected.
func (s *State) Forget() {
	s.Object, s.Tools, s.Handling, s.Settings = nil, nil, Handling{}, nil
	s.Missing = slices.DeleteFunc(slices.Clone(s.Missing), func(path string) bool { return strings.HasPrefix(path, "session.") })
}

// Lack notes that a secret is gone.
func (s *State) Lack(paths ...string) { s.Missing = append(slices.Clone(s.Missing), paths...) }

// Regained records that a caller has set the secrets under some members of the configuration, or of a setting's
// method, again. It returns their paths.
func (s *State) Regained(members ...string) (given []string) {
	var missing []string
	for _, path := range s.Missing {
		if slices.ContainsFunc(members, func(m string) bool { return path == m || strings.HasPrefix(path, m+".") }) {
			given = append(given, path)
		} else {
			missing = append(missing, path)
		}
	}
	s.Missing = missing
	return given
}

// CredentialsNeeded is the error for a session whose secrets are gone; nil if none is.
func (s *State) CredentialsNeeded(id string) error {
	if len(s.Missing) == 0 {
		return nil
	}
	return fault.New(fault.CredentialsNeeded, "the bridge was restarted and does not store secrets: set %s of session %q again", strings.Join(s.Missing, ", "), id).
		With("session_id", id).With("missing", strings.Join(s.Missing, ","))
}

// SetModel takes over a switch of the model.
func (s *State) SetModel(params jsonobj.Object) {
	s.Object = s.Object.Clone()
	s.Object.Set("model", params.Get("modelId"))
	s.Object.Set("reasoningEffort", params.Get("reasoningEffort"))
	s.Object.Set("modelCapabilities", params.Get("modelCapabilities"))
}

// HasHeaders reports whether the provider has headers.
func (s *State) HasHeaders() bool {
	provider, err := jsonobj.Parse(s.Object.Get("provider"))
	if err != nil {
		return false
	}
	headers, err := jsonobj.Parse(provider.Get("headers"))
	return err == nil && len(headers) > 0
}
