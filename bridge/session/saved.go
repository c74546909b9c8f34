package session

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/history"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/info"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/usage"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// saved is the stored form of a session. It has the configuration without its secrets; config.Saved names the
// paths of the omitted secrets.
type saved struct {
	config.Saved
	history.Known
	info.Info
	Disconnected bool          `json:"disconnected,omitempty"`
	Shut         bool          `json:"shut,omitempty"`
	Lifetime     int32         `json:"lifetime,omitempty"`
	Timeout      time.Duration `json:"timeout,omitempty"`
	// Pending has the ids of pending tool calls and permissions, also of those that a load is still to make pending again.
	Pending []string `json:"pending,omitempty"`

	Participants []roster.Saved `json:"participants,omitempty"`
	Usage        usage.Usage    `json:"usage,omitempty"`
}

// Providers are the model providers of the bridge's own configuration, by name.
type Providers = config.Providers

// Save returns the stored form of the session, or nil in the states Creating and Deleted. It omits configuration
// members that equal the bridge's defaults, and replaces a configured model provider by its name. secret is what the stored
// form lacks because of its secrets, nil if it lacks nothing.
func (s *Session) Save(defaults jsonobj.Object, providers Providers) (text, secret json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loader.state == Creating || s.loader.state == Deleted {
		return nil, nil
	}
	accepted := s.settings.accepted()
	state, lacks := accepted.Save(defaults, providers)
	if lacks != nil {
		secret, _ = json.Marshal(lacks) // JSON values and strings
	}
	out := saved{
		Saved: state, Known: s.ingester.Known, Info: s.ingester.Info,
		Disconnected: s.loader.state == Disconnected || s.loader.ending, Shut: s.loader.shut, Lifetime: int32(s.loader.lifetime), Timeout: s.loader.timeout,
	}
	out.TurnEnd = s.turns.knownEnd()
	out.Pending = slices.Clone(s.loader.awaited)
	for _, p := range s.callbacks.Registry().List() {
		if p.Kind.Survives && !slices.Contains(out.Pending, p.ID) {
			out.Pending = append(out.Pending, p.ID)
		}
	}
	out.Participants, out.Usage = s.roster.Save(), s.ingester.Usage
	text, _ = json.Marshal(out) // JSON values and plain fields
	return text, secret
}

// Usage returns what the session has used of models.
func (s *Session) Usage() usage.Usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ingester.Usage)
}

// SavedUsage returns what a session has used, of what Save returned; nil if it cannot be read.
func SavedUsage(text []byte) usage.Usage {
	var in struct{ Usage usage.Usage }
	if json.Unmarshal(text, &in) != nil {
		return nil
	}
	return in.Usage
}

// SavedMissing returns the paths of the secrets that a session has, and that what Save returned lacks.
func SavedMissing(text []byte) []string {
	var in saved
	if json.Unmarshal(text, &in) != nil {
		return nil
	}
	return in.Missing
}

// CheckSaved returns an error if Restore cannot read text.
func CheckSaved(text []byte) error {
	var in saved
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	_, err := jsonobj.Parse(in.Config)
	return err
}

// Restore gives a new session the state that Save returned before the bridge was restarted; secret may be nil. The
// participants of the session can resume within their grace time.
func (s *Session) Restore(text, secret []byte, defaults jsonobj.Object, providers Providers) error {
	var in saved
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	if secret != nil {
		var lacked config.Secret
		if err := json.Unmarshal(secret, &lacked); err != nil {
			return err
		}
		in.Complete(lacked)
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
	s.loader.awaited, s.loader.shut = in.Pending, in.Shut
	s.loader.lifetime, s.ingester.Known, s.ingester.Info = bridgev1.Lifetime(in.Lifetime), in.Known, in.Info
	s.ingester.Usage = in.Usage
	if in.Timeout > 0 {
		s.loader.timeout = in.Timeout
	}
	if in.Disconnected {
		s.prompts.leaveInterrupted()     // which may not be stored yet, either
		if !s.prompts.Outbox().Empty() { // its process ended before it had removed them
			s.prompts.Clear() // the end of its use has ended their turns
			s.prompts.flusher.now(nil)
		}
	} else {
		s.prompts.restore()
	}
	s.turns.renotify(s.loader.state == Unloaded)
	s.participants.restore(in.Participants)
	return nil
}

// Awaited reports whether a restored session should be loaded at once. Either callbacks were pending when the
// bridge ended, and the CLI repeats them after a load, or the agent is to continue a turn that was interrupted,
// or the outbox has prompts, and only the CLI's history tells whether the CLI accepted them.
func (s *Session) Awaited() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	goesOn := len(s.loader.awaited) > 0 || s.ingester.Known.Interruption.Last && s.settings.State.Continues
	return s.loader.state == Unloaded && (goesOn && len(s.settings.State.Missing) == 0 || !s.prompts.Outbox().Empty())
}
