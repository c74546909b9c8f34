package copilot

import (
	"cmp"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// SessionInfo is a session, as [Client.ListSessions], [Session.Get] and [Client.WatchSessions] return it.
type SessionInfo struct {
	// The session's id.
	ID string
	// Whether the session is in memory, and what opens it otherwise.
	State SessionState
	// The session's name, or else its summary; empty before the first turn.
	Title string
	// The model's id; empty if the server does not know it.
	Model string
	// Everything that the server says about the session.
	Proto *bridgev1.Session
}

func newSessionInfo(s *bridgev1.Session) *SessionInfo {
	return &SessionInfo{
		ID:    s.GetSessionId(),
		State: wordOf[SessionState](s.GetState()),
		Title: cmp.Or(s.GetName(), s.GetSummary()),
		Model: s.GetModelId(),
		Proto: s,
	}
}

// SessionChange is a change of one of the caller's sessions.
type SessionChange struct {
	// What happened.
	Kind ChangeKind
	// The session after the change; only its id if it was deleted or is no longer shared.
	Session *SessionInfo
	// The change as a message.
	Proto *bridgev1.WatchSessionsResponse
}

func newSessionChange(change *bridgev1.WatchSessionsResponse) *SessionChange {
	return &SessionChange{wordOf[ChangeKind](change.GetChange()), newSessionInfo(change.GetSession()), change}
}

// Messages of the API that programs often name.
type (
	// SessionConfig is how a session works.
	SessionConfig = cliv1.SessionConfig
	// SessionFilter selects sessions.
	SessionFilter = bridgev1.SessionFilter
	// ImportSessionHeader says what [Client.ImportSession] makes of an archive.
	ImportSessionHeader = bridgev1.ImportSessionHeader
	// Position is a place in a session's journal.
	Position = bridgev1.Position
	// Event is an event of a session.
	Event = bridgev1.Event
)
