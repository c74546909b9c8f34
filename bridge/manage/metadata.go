package manage

import (
	"cmp"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// metadata describes a session of the CLI's history.
type metadata struct {
	SessionID    string    `json:"sessionId"`
	StartTime    time.Time `json:"startTime"`
	ModifiedTime time.Time `json:"modifiedTime"`
	Summary      string    `json:"summary"`
	Name         string    `json:"name"`
	ClientName   string    `json:"clientName"`
	IsRemote     bool      `json:"isRemote"`
	Context      *struct {
		Cwd        string `json:"cwd"`
		GitRoot    string `json:"gitRoot"`
		Repository string `json:"repository"`
		Branch     string `json:"branch"`
	} `json:"context"`
}

// onto merges the metadata into the bridge's description of the session; s is nil for a session that
// the bridge does not have.
func (m *metadata) onto(s *bridgev1.Session) *bridgev1.Session {
	if s == nil {
		s = &bridgev1.Session{
			SessionId: m.SessionID, State: bridgev1.SessionState_SESSION_STATE_STORED,
			Context: &bridgev1.SessionContext{},
		}
	}
	s.IsRemote = m.IsRemote
	if !m.StartTime.IsZero() {
		s.CreateTime = timestamppb.New(m.StartTime)
	}
	if !m.ModifiedTime.IsZero() {
		s.UpdateTime = timestamppb.New(m.ModifiedTime)
	}
	s.Summary, s.Name = cmp.Or(m.Summary, s.Summary), cmp.Or(m.Name, s.Name)
	s.ClientName = cmp.Or(m.ClientName, s.ClientName)
	if c := m.Context; c != nil {
		s.Context = &bridgev1.SessionContext{
			WorkingDirectory: c.Cwd, GitRoot: c.GitRoot, Repository: c.Repository, Branch: c.Branch,
		}
	}
	return s
}
