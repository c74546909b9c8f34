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

// creation reports whether a call creates a session, and returns the labels that the session needs of its replica.
func creation(request any) (labels map[string]string, creates bool) {
	var create *bridgev1.CreateSessionRequest
	switch m := request.(type) {
	case *bridgev1.CreateSessionRequest:
		create = m
	case *bridgev1.ImportSessionRequest:
		return nil, true
	case *bridgev1.RunRequest:
		create = m.GetCreate()
	case *bridgev1.AttachRequest:
		create = m.GetStart().GetCreate()
	}
	return create.GetNodeLabels(), create != nil
}

// first returns the first of some names, "" if there is none.
func first(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
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
