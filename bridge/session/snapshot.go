package session

import (
	"cmp"
	"encoding/json"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// contextInfo is where a session works, in the CLI's members.
type contextInfo struct {
	Cwd        string `json:"cwd"`
	GitRoot    string `json:"gitRoot"`
	Repository string `json:"repository"`
	Branch     string `json:"branch"`
}

// capabilities is what a session can do, in the CLI's members.
type capabilities struct {
	UI struct {
		Elicitation, McpApps, Canvases bool
	} `json:"ui"`
	Extensions bool `json:"extensions"`
}

// applyOpenResult takes over the CLI's answer to create and resume. config is the session's.
func (m *meta) applyOpenResult(result json.RawMessage, config jsonobj.Object) {
	var r struct {
		WorkspacePath string        `json:"workspacePath"`
		Capabilities  *capabilities `json:"capabilities"`
		StartTime     time.Time     `json:"startTime"`
		IsRemote      bool          `json:"isRemote"`
		ModelState    struct {
			ModelID string `json:"modelId"`
		} `json:"modelState"`
	}
	if json.Unmarshal(result, &r) != nil {
		return
	}
	m.isRemote = r.IsRemote
	if r.WorkspacePath != "" {
		m.workspacePath = r.WorkspacePath
	}
	if r.Capabilities != nil {
		m.capabilities = *r.Capabilities
	}
	if !r.StartTime.IsZero() {
		m.start = r.StartTime
	}
	if m.modified.Before(m.start) { // the session was made here before the CLI made it
		m.modified = m.start
	}
	if r.ModelState.ModelID != "" {
		m.model = r.ModelState.ModelID
	} else if model := config.String("model"); m.model == "" {
		m.model = model
	}
	if m.context.Cwd == "" {
		m.context.Cwd = config.String("workingDirectory")
	}
}

var states = map[State]bridgev1.SessionState{
	Loaded: bridgev1.SessionState_SESSION_STATE_LOADED, Unloaded: bridgev1.SessionState_SESSION_STATE_UNLOADED,
	Disconnected: bridgev1.SessionState_SESSION_STATE_DISCONNECTED, Deleted: bridgev1.SessionState_SESSION_STATE_DISCONNECTED,
}

// Snapshot returns the session as the API shows it.
func (s *Session) Snapshot() *bridgev1.Session {
	at := s.journal.Last()
	s.mu.Lock()
	defer s.mu.Unlock()
	m := &s.meta
	out := &bridgev1.Session{
		SessionId: s.id, State: states[s.state],
		CreateTime: timestamppb.New(m.start), UpdateTime: timestamppb.New(m.modified),
		Summary: m.summary, Name: m.name, IsRemote: m.isRemote,
		Context: &bridgev1.SessionContext{
			WorkingDirectory: m.context.Cwd, GitRoot: m.context.GitRoot, Repository: m.context.Repository, Branch: m.context.Branch,
		},
		WorkspacePath: m.workspacePath, ModelId: m.model, Lifetime: s.lifetime,
		Capabilities: &bridgev1.SessionCapabilities{
			Elicitation: m.capabilities.UI.Elicitation, McpApps: m.capabilities.UI.McpApps,
			Canvases: m.capabilities.UI.Canvases, Extensions: m.capabilities.Extensions,
		},
		TurnRunning: s.turn.Busy(), Participants: s.participantList(), Position: Proto(at),
		ClientName: s.config.Object.String("clientName"),
	}
	if err := cmp.Or(s.journal.Degraded(), s.prompts.Box().Problem()); err != nil {
		out.JournalProblem = err.Error()
	}
	if s.state == Unloaded && len(s.config.Missing) > 0 {
		out.State = bridgev1.SessionState_SESSION_STATE_CREDENTIALS_NEEDED
	}
	if s.runtime != nil {
		out.CliVersion = s.runtime.Version()
	}
	return out
}

// Proto gives a position the form of the API.
func Proto(p journal.Position) *bridgev1.Position {
	return &bridgev1.Position{Epoch: p.Epoch, Seq: p.Seq}
}

// Offered returns the participants a callback was offered to.
func (s *Session) Offered(p *callback.Pending) []string { return s.Pending().Offered(p) }
