package session

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// saved is what is kept of a session for the bridge's next life: all of its configuration
// but the secrets, of which it is only noted that there were some.
type saved struct {
	Disconnected bool `json:"disconnected,omitempty"`
	// Config is without the members that Defaulted names: they were the bridge's defaults,
	// and will be those of its next life.
	Config    json.RawMessage `json:"config"`
	Defaulted []string        `json:"defaulted,omitempty"`
	// ProviderRef is the provider of the bridge's own configuration that Config lacks.
	ProviderRef string            `json:"providerRef,omitempty"`
	Missing     []string          `json:"missing,omitempty"` // paths of secrets
	Tools       []json.RawMessage `json:"tools,omitempty"`
	Handling    Handling          `json:"handling"`
	Lifetime    int32             `json:"lifetime,omitempty"`
	Timeout     time.Duration     `json:"timeout,omitempty"`
	Used        bool              `json:"used,omitempty"`
	Turned      bool              `json:"turned,omitempty"`
	// Ended is where the last turn ended, Cut where that was told of one that a life of the
	// bridge did not see the end of.
	Ended journal.Position `json:"ended"`
	Cut   journal.Position `json:"cut"`
	// Tied is how far the journal was compared with the CLI's history.
	Tied journal.Position `json:"tied"`

	// Pending are the tool calls and permissions that wait.
	Pending []string `json:"pending,omitempty"`

	Participants []savedParticipant `json:"participants,omitempty"`

	// Settings are the calls that are made again after each load, but for secrets that they
	// carried, which are missing; Registered the event types that callers want, by handle.
	Settings   []savedSetting    `json:"settings,omitempty"`
	Registered map[string]string `json:"registered,omitempty"`

	Start         time.Time    `json:"start"`
	Modified      time.Time    `json:"modified"`
	Summary       string       `json:"summary,omitempty"`
	Name          string       `json:"name,omitempty"`
	WorkspacePath string       `json:"workspacePath,omitempty"`
	IsRemote      bool         `json:"isRemote,omitempty"`
	Context       contextInfo  `json:"context"`
	Model         string       `json:"model,omitempty"`
	Capabilities  capabilities `json:"capabilities"`
}

// savedParticipant is a participant who may come back. His token is kept as a hash.
type savedParticipant struct {
	ID       string            `json:"id"`
	Token    string            `json:"token"`
	Name     string            `json:"name,omitempty"`
	Tools    []json.RawMessage `json:"tools,omitempty"`
	Commands []Command         `json:"commands,omitempty"`
	Handling Handling          `json:"handling"`
	Own      json.RawMessage   `json:"own,omitempty"`
	Grace    time.Duration     `json:"grace,omitempty"`
}

// savedSetting is a call that set something.
type savedSetting struct {
	Key    string          `json:"key,omitempty"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// savedSettings are the settings that can be kept, and of those that carried secrets what
// is missing, by method and path. One that replaces others is kept without its secrets, which
// come with the one that replaces it; another would be made twice. The caller holds mu.
func (s *Session) savedSettings(missing *[]string) (out []savedSetting) {
	for _, one := range s.settings {
		before := len(*missing)
		text := withoutSecrets(one.params.JSON(), one.method+".", missing)
		if len(*missing) == before || one.key != "" {
			out = append(out, savedSetting{one.key, one.method, text})
		}
	}
	return out
}

// secretMembers are the members, at any depth, whose values are not kept: what the
// contract marks as secret, and what carries such things.
var secretMembers = map[string]bool{
	"gitHubToken": true, "apiKey": true, "apiKeyCommand": true, "bearerToken": true, "token": true,
	"accessToken": true, "executionToken": true, "sessionToken": true, "clientSecret": true,
	"hmac": true, "password": true, "headers": true, "requestHeaders": true, "env": true,
	"environment": true, "envVars": true, "grantedEnvironmentVariables": true, "secrets": true,
	"credentials": true, "authInfo": true, "authorizationUrl": true,
}

// withoutSecrets returns a JSON value without the secrets in it, and adds their paths to
// missing. What holds none keeps its bytes.
func withoutSecrets(value json.RawMessage, at string, missing *[]string) json.RawMessage {
	trimmed := bytes.TrimLeft(value, " \t\r\n")
	if len(trimmed) == 0 {
		return value
	}
	switch trimmed[0] {
	case '{':
		o, err := jsonobj.Parse(value)
		if err != nil {
			return json.RawMessage("null")
		}
		out := make(jsonobj.Object, 0, len(o))
		for _, m := range o {
			path := at + m.Key
			if !secretMembers[m.Key] || empty(m.Value) {
				out = append(out, jsonobj.Member{Key: m.Key, Value: withoutSecrets(m.Value, path+".", missing)})
				continue
			}
			*missing = append(*missing, path)
		}
		return out.JSON()
	case '[':
		var list []json.RawMessage
		if json.Unmarshal(value, &list) != nil {
			return json.RawMessage("null")
		}
		for i := range list {
			list[i] = withoutSecrets(list[i], at, missing)
		}
		text, _ := json.Marshal(list) // values that were read
		return text
	}
	return value
}

// empty reports whether a value holds nothing that could be secret.
func empty(value json.RawMessage) bool {
	switch string(bytes.TrimSpace(value)) {
	case "null", "{}", "[]", `""`, "true", "false":
		return true
	}
	return false
}

// Providers are the model providers of the bridge's own configuration, by name.
type Providers map[string]json.RawMessage

// Save returns what is to be kept of the session. defaults are members of configurations
// that the bridge sets itself, providers what it can give again in its next life. It returns nil for a session that is not to be kept.
func (s *Session) Save(defaults jsonobj.Object, providers Providers) json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == Creating || s.state == Deleted {
		return nil
	}
	m := &s.meta
	out := saved{
		Disconnected: s.state == Disconnected, Handling: s.handling, Lifetime: int32(s.lifetime), Timeout: s.timeout,
		Used: s.used, Turned: s.turned, Start: m.start, Modified: m.modified, Summary: m.summary, Name: m.name,
		WorkspacePath: m.workspacePath, IsRemote: m.isRemote, Context: m.context, Model: m.model, Capabilities: m.capabilities,
		Tools: toolTexts(s.tools), Missing: slices.Clone(s.missing), Registered: maps.Clone(s.registered),
	}
	out.Ended, out.Cut, out.Tied = s.ended, s.cut, s.tied
	config := s.config.Clone()
	if _, ok := providers[s.providerRef]; ok { // whatever it is by now: a key may have been replaced
		config.Set("provider", nil)
		out.ProviderRef = s.providerRef
	}
	for _, d := range defaults {
		if bytes.Equal(config.Get(d.Key), d.Value) {
			config.Set(d.Key, nil)
			out.Defaulted = append(out.Defaulted, d.Key)
		}
	}
	out.Config = withoutSecrets(config.JSON(), "", &out.Missing)
	out.Settings = s.savedSettings(&out.Missing)
	slices.Sort(out.Missing)
	out.Missing = slices.Compact(out.Missing)
	for _, p := range s.pending.List() {
		if p.Kind.Survives {
			out.Pending = append(out.Pending, p.ID)
		}
	}
	for _, p := range s.participants {
		var lost []string
		out.Participants = append(out.Participants, savedParticipant{
			ID: p.ID, Token: p.tokenHash(), Name: p.name, Tools: toolTexts(p.tools), Commands: p.commands,
			Handling: p.handling, Own: withoutSecrets(p.own.JSON(), "", &lost), Grace: p.grace,
		})
	}
	text, _ := json.Marshal(out) // JSON values and plain fields
	return text
}

func toolTexts(tools []Tool) (out []json.RawMessage) {
	for _, t := range tools {
		out = append(out, t.JSON)
	}
	return out
}

func toolsOf(texts []json.RawMessage) (out []Tool) {
	for _, text := range texts {
		var t struct{ Name string }
		if json.Unmarshal(text, &t) == nil {
			out = append(out, Tool{Name: t.Name, JSON: text})
		}
	}
	return out
}

// tokenHash is what is kept of a participant's token.
func (p *Participant) tokenHash() string {
	if p.Token == "" {
		return p.hash
	}
	return hashToken(p.Token)
}

func hashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// CheckSaved reports what keeps Restore from taking what Save returned.
func CheckSaved(text []byte) error {
	var in saved
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	_, err := jsonobj.Parse(in.Config)
	return err
}

// Restore gives a new session what an earlier life of the bridge kept of it. Its
// participants have their grace time to come back.
func (s *Session) Restore(text []byte, defaults jsonobj.Object, providers Providers) error {
	var in saved
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	config, err := jsonobj.Parse(in.Config)
	if err != nil {
		return err
	}
	for _, name := range in.Defaulted {
		config.Set(name, defaults.Get(name))
	}
	if ref := in.ProviderRef; ref != "" {
		if text, ok := providers[ref]; ok {
			config.Set("provider", text)
		} else { // it is no longer configured
			in.Missing = append(in.Missing, "provider")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state, s.providerRef = Unloaded, in.ProviderRef
	if in.Disconnected {
		s.state = Disconnected
	}
	s.config, s.missing, s.tools, s.handling = config, in.Missing, toolsOf(in.Tools), in.Handling
	s.awaited, s.registered = len(in.Pending) > 0, in.Registered
	for _, one := range in.Settings {
		if params, err := jsonobj.Parse(one.Params); err == nil {
			s.settings = append(s.settings, setting{one.Key, one.Method, params})
		}
	}
	s.lifetime, s.used, s.turned = bridgev1.Lifetime(in.Lifetime), in.Used, in.Turned
	if in.Timeout > 0 {
		s.timeout = in.Timeout
	}
	s.meta = meta{
		start: in.Start, modified: in.Modified, summary: in.Summary, name: in.Name, workspacePath: in.WorkspacePath,
		isRemote: in.IsRemote, context: in.Context, model: in.Model, capabilities: in.Capabilities,
	}
	s.ended, s.cut, s.tied = in.Ended, in.Cut, in.Tied
	s.restorePrompts()
	s.tellAgain()
	for _, sp := range in.Participants {
		p := &Participant{ID: sp.ID, hash: sp.Token, name: sp.Name, tools: toolsOf(sp.Tools), commands: sp.Commands, handling: sp.Handling, grace: sp.Grace}
		if p.own, err = jsonobj.Parse(sp.Own); err != nil {
			p.own = nil
		}
		s.participants = append(s.participants, p)
		// Who had no grace had left when its stream broke.
		p.timer = time.AfterFunc(p.grace, func() { s.graceOver(p) })
	}
	return nil
}

// Awaited reports whether callbacks of the session waited when the bridge ended, so that
// it has to be loaded for them to come again, or prompts of which the history has to tell
// whether the CLI took them up.
func (s *Session) Awaited() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state == Unloaded && (s.awaited && len(s.missing) == 0 || !s.prompts.box.Empty())
}

// Lack notes that a secret of the session is gone.
func (s *Session) Lack(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.missing = append(s.missing, path)
}

// Regained notes that the secrets under a member were given again.
func (s *Session) Regained(member string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.regained(member)
}

// credentialsNeeded is the error for a session whose secrets are gone. The caller holds mu.
func (s *Session) credentialsNeeded() error {
	if len(s.missing) == 0 {
		return nil
	}
	return fault.New(fault.CredentialsNeeded, "the bridge was restarted and does not keep secrets: %s of session %q must be given again", strings.Join(s.missing, ", "), s.id).
		With("session_id", s.id).With("missing", strings.Join(s.missing, ","))
}

// regained notes that the secrets under some members of the configuration were given
// again. The caller holds mu.
func (s *Session) regained(members ...string) {
	s.missing = slices.DeleteFunc(slices.Clone(s.missing), func(path string) bool {
		return slices.ContainsFunc(members, func(m string) bool { return path == m || strings.HasPrefix(path, m+".") })
	})
}
