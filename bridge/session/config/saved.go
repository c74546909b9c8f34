package config

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
)

// Saved is the stored form of a State. It omits secrets and lists their paths.
type Saved struct {
	// Config omits the members that Defaulted names. Their values were the bridge's defaults; Restore sets them
	// to the defaults of the restoring process.
	Config    json.RawMessage `json:"config"`
	Defaulted []string        `json:"defaulted,omitempty"`
	// ProviderRef is the provider of the bridge's own configuration that Config lacks.
	ProviderRef string            `json:"providerRef,omitempty"`
	Missing     []string          `json:"missing,omitempty"` // paths of secrets
	Tools       []json.RawMessage `json:"tools,omitempty"`
	Handling    Handling          `json:"handling"`
	Labels      map[string]string `json:"labels,omitempty"`
	NodeLabels  map[string]string `json:"nodeLabels,omitempty"`
	Continues   bool              `json:"continues,omitempty"`
	// Settings are the calls that are repeated after each load, without secrets that they
	// carried, which are missing; Registered the event types that callers want, by handle.
	Settings   []SavedSetting    `json:"settings,omitempty"`
	Registered map[string]string `json:"registered,omitempty"`
}

// SavedSetting is a call that set something.
type SavedSetting struct {
	Key    string          `json:"key,omitempty"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// Secret is what the stored form lacks because of its secrets. It must be encrypted to be stored.
type Secret struct {
	Config   json.RawMessage `json:"config"`
	Settings []SavedSetting  `json:"settings,omitempty"`
	// Missing are the paths of secrets that the state did not have either.
	Missing []string `json:"missing,omitempty"`
}

// Complete adds what Save has left out.
func (s *Saved) Complete(secret Secret) {
	s.Config, s.Settings, s.Missing = secret.Config, secret.Settings, secret.Missing
}

// Providers are the model providers of the bridge's own configuration, by name.
type Providers map[string]json.RawMessage

// Save returns the stored form, and what it lacks; nil if it lacks nothing. defaults are the members that the bridge
// adds to configurations. providers are the bridge's own model providers, which the stored form names.
func (s *State) Save(defaults jsonobj.Object, providers Providers) (Saved, *Secret) {
	out := Saved{
		Handling: s.Handling, Tools: ToolTexts(s.Tools), Missing: slices.Clone(s.Missing), Registered: maps.Clone(s.Registered),
		Labels: s.Labels, NodeLabels: s.NodeLabels, Continues: s.Continues,
	}
	object := s.Object.Clone()
	if _, ok := providers[s.ProviderRef]; ok { // by the name alone: a key may have been replaced
		object.Set("provider", nil)
		out.ProviderRef = s.ProviderRef
	}
	for _, d := range defaults {
		if bytes.Equal(object.Get(d.Key), d.Value) {
			object.Set(d.Key, nil)
			out.Defaulted = append(out.Defaulted, d.Key)
		}
	}
	secret := &Secret{Config: object.JSON(), Missing: s.Missing}
	for _, one := range s.Settings {
		secret.Settings = append(secret.Settings, SavedSetting{one.Key, one.Method, one.Params.JSON()})
	}
	out.Config = WithoutSecrets(secret.Config, "", &out.Missing)
	out.Settings = savedSettings(s.Settings, &out.Missing)
	if len(out.Missing) == len(s.Missing) {
		secret = nil
	}
	slices.Sort(out.Missing)
	out.Missing = slices.Compact(out.Missing)
	return out, secret
}

// savedSettings returns the stored form of settings, and adds the paths of the omitted secrets to missing, by
// method and path. It omits the secrets of a setting with a key, which the next call with that key replaces. It
// omits a setting without a key completely, because repeating the call later would apply it twice.
func savedSettings(settings []Setting, missing *[]string) (out []SavedSetting) {
	for _, one := range settings {
		before := len(*missing)
		text := WithoutSecrets(one.Params.JSON(), one.Method+".", missing)
		if len(*missing) == before || one.Key != "" {
			out = append(out, SavedSetting{one.Key, one.Method, text})
		}
	}
	return out
}

// Restore returns the state that Save kept.
func Restore(in Saved, defaults jsonobj.Object, providers Providers) (State, error) {
	object, err := jsonobj.Parse(in.Config)
	if err != nil {
		return State{}, err
	}
	for _, name := range in.Defaulted {
		object.Set(name, defaults.Get(name))
	}
	missing := in.Missing
	if ref := in.ProviderRef; ref != "" {
		if text, ok := providers[ref]; ok {
			object.Set("provider", text)
		} else { // it is no longer configured
			missing = append(missing, "provider")
		}
	}
	out := State{
		Object: object, Tools: ToolsOf(in.Tools), Handling: in.Handling, ProviderRef: in.ProviderRef,
		Missing: missing, Registered: in.Registered, Labels: in.Labels,
		NodeLabels: in.NodeLabels, Continues: in.Continues,
	}
	for _, one := range in.Settings {
		if params, err := jsonobj.Parse(one.Params); err == nil {
			out.Settings = append(out.Settings, Setting{one.Key, one.Method, params})
		}
	}
	return out, nil
}
