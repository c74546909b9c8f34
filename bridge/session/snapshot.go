package session

import (
	"cmp"
	"maps"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

var states = map[State]bridgev1.SessionState{
	Loaded: bridgev1.SessionState_SESSION_STATE_LOADED, Unloaded: bridgev1.SessionState_SESSION_STATE_UNLOADED,
	Disconnected: bridgev1.SessionState_SESSION_STATE_DISCONNECTED, Deleted: bridgev1.SessionState_SESSION_STATE_DISCONNECTED,
}

// Snapshot returns the session as a message of the API.
func (s *Session) Snapshot() *bridgev1.Session {
	at := s.journal.Last()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.ingester.Info.Proto()
	out.SessionId, out.State, out.Lifetime = s.id, states[s.loader.state], s.loader.lifetime
	out.OnInterruption = bridgev1.OnInterruption_ON_INTERRUPTION_REPORT
	if s.settings.State.Continues {
		out.OnInterruption = bridgev1.OnInterruption_ON_INTERRUPTION_CONTINUE
	}
	out.TurnRunning, out.Participants, out.Position = s.turns.machine.Busy(), s.participants.proto(), Proto(at)
	out.Labels, out.NodeLabels = maps.Clone(s.settings.State.Labels), s.settings.State.NodeLabels
	out.ClientName = s.settings.State.Object.String("clientName")
	if err := cmp.Or(s.journal.Degraded(), s.prompts.Outbox().Problem()); err != nil {
		out.StorageProblem = err.Error()
	}
	if s.loader.state == Unloaded && len(s.settings.State.Missing) > 0 {
		out.State = bridgev1.SessionState_SESSION_STATE_CREDENTIALS_NEEDED
	}
	if s.loader.state == Loaded { // and not while it is being unloaded
		out.CliVersion = s.loader.runtime.Version()
	}
	return out
}

// Proto returns a position as a message of the API.
func Proto(p journal.Position) *bridgev1.Position {
	return &bridgev1.Position{Epoch: p.Epoch, Seq: p.Seq}
}
