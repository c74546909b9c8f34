package session

import (
	"encoding/json"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/history"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/info"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// saved is what is kept of a session for the bridge's next life: all of its configuration
// but the secrets, of which it is only noted that there were some.
type saved struct {
	config.Saved
	history.Marks
	info.Info
	Disconnected bool          `json:"disconnected,omitempty"`
	Lifetime     int32         `json:"lifetime,omitempty"`
	Timeout      time.Duration `json:"timeout,omitempty"`
	// Pending are the tool calls and permissions that wait.
	Pending []string `json:"pending,omitempty"`

	Participants []roster.Saved `json:"participants,omitempty"`
}

// Providers are the model providers of the bridge's own configuration, by name.
type Providers = config.Providers

// Save returns what is to be kept of the session. defaults are members of configurations
// that the bridge sets itself, providers what it can give again in its next life. It returns nil for a session that is not to be kept.
func (s *Session) Save(defaults jsonobj.Object, providers Providers) json.RawMessage {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loader.state == Creating || s.loader.state == Deleted {
		return nil
	}
	out := saved{
		Saved: s.settings.State.Save(defaults, providers), Marks: s.intake.Marks, Info: s.intake.Info,
		Disconnected: s.loader.state == Disconnected, Lifetime: int32(s.loader.lifetime), Timeout: s.loader.timeout,
	}
	for _, p := range s.callbacks.Registry().List() {
		if p.Kind.Survives {
			out.Pending = append(out.Pending, p.ID)
		}
	}
	out.Participants = s.roster.Save()
	text, _ := json.Marshal(out) // JSON values and plain fields
	return text
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
	state, err := config.Restore(in.Saved, defaults, providers)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loader.state, s.settings.State = Unloaded, state
	if in.Disconnected {
		s.loader.state = Disconnected
	}
	s.loader.awaited = len(in.Pending) > 0
	s.loader.lifetime, s.intake.Marks, s.intake.Info = bridgev1.Lifetime(in.Lifetime), in.Marks, in.Info
	if in.Timeout > 0 {
		s.loader.timeout = in.Timeout
	}
	s.prompts.Restore(locked{s})
	s.turns.Renotify(s.loader.state == Unloaded)
	s.participants.Restore(in.Participants)
	return nil
}

// Awaited reports whether callbacks of the session waited when the bridge ended, so that
// it has to be loaded for them to come again, or prompts of which the history has to tell
// whether the CLI took them up.
func (s *Session) Awaited() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.loader.state == Unloaded && (s.loader.awaited && len(s.settings.State.Missing) == 0 || !s.prompts.Box().Empty())
}
