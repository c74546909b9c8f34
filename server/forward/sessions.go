package forward

import (
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// SessionsOf returns the sessions that a call means, by its first request; none if the call concerns no session.
func SessionsOf(request any) []string {
	switch m := request.(type) {
	case *bridgev1.SubscribeRequest:
		ids := make([]string, 0, len(m.GetSessions()))
		for _, s := range m.GetSessions() {
			ids = append(ids, s.GetSessionId())
		}
		return ids
	case *bridgev1.RunRequest:
		return one(m.GetSessionId(), m.GetCreate().GetSessionId())
	case *bridgev1.SendStreamRequest:
		return one(m.GetRequest().GetSessionId())
	case *bridgev1.ImportSessionRequest:
		return one(m.GetHeader().GetSessionId())
	case *bridgev1.AttachRequest:
		start := m.GetStart()
		return one(start.GetJoinSessionId(), start.GetResume().GetSessionId(), start.GetCreate().GetSessionId())
	}
	id := ""
	if m, ok := request.(interface{ GetSessionId() string }); ok {
		id = m.GetSessionId()
	}
	if m, ok := request.(interface{ GetPolicySessionId() string }); ok {
		return one(id, m.GetPolicySessionId())
	}
	return one(id)
}

// creates reports whether a call creates a session.
func creates(request any) bool {
	switch m := request.(type) {
	case *bridgev1.CreateSessionRequest, *bridgev1.ImportSessionRequest:
		return true
	case *bridgev1.RunRequest:
		return m.GetCreate() != nil
	case *bridgev1.AttachRequest:
		return m.GetStart().GetCreate() != nil
	}
	return false
}

// one returns the first name that is not empty.
func one(names ...string) []string {
	for _, name := range names {
		if name != "" {
			return []string{name}
		}
	}
	return nil
}
