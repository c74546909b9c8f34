package config

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
)

// Saved is the part of a State that is kept on disk: all but the secrets, of which it is only
// noted that there were some.
type Saved struct {
	// Config is without the members that Defaulted names: they were the bridge's defaults,
	// and are set to those of the process that restores it.
	Config    json.RawMessage `json:"config"`
	Defaulted []string        `json:"defaulted,omitempty"`
	// ProviderRef is the provider of the bridge's own configuration that Config lacks.
	ProviderRef string            `json:"providerRef,omitempty"`
	Missing     []string          `json:"missing,omitempty"` // paths of secrets
	Tools       []json.RawMessage `json:"tools,omitempty"`
	Handling    Handling          `json:"handling"`
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

// Providers are the model providers of the bridge's own configuration, by name.
type Providers map[string]json.RawMessage

// Save returns the form to be kept. defaults are members of configurations that the bridge sets
// itself, providers those that it has again after a restart.
func (s *State) Save(defaults jsonobj.Object, providers Providers) Saved {
	out := Saved{
		Handling: s.Handling, Tools: ToolTexts(s.Tools), Missing: slices.Clone(s.Missing), Registered: maps.Clone(s.Registered),
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
	out.Config = WithoutSecrets(object.JSON(), "", &out.Missing)
	out.Settings = savedSettings(s.Settings, &out.Missing)
	slices.Sort(out.Missing)
	out.Missing = slices.Compact(out.Missing)
	return out
}

// savedSettings are the settings that can be kept; the secrets that they carried are added to
// missing, by method and path. A setting with a key is kept without its secrets, which come with
// the call that replaces it; another would be made twice, and is left out.
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
		Missing: missing, Registered: in.Registered,
	}
	for _, one := range in.Settings {
		if params, err := jsonobj.Parse(one.Params); err == nil {
			out.Settings = append(out.Settings, Setting{one.Key, one.Method, params})
		}
	}
	return out, nil
}
