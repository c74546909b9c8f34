package forward

import (
	"context"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
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

// creation reports whether a call creates a session, and returns the labels that the session needs of its replica. name
// is the name that a session without one gets because of the request's id, so that a repetition finds it; "" for a
// random one.
func creation(tenant string, request any) (labels map[string]string, name string, creates bool) {
	var create *bridgev1.CreateSessionRequest
	key := backend.Key{Tenant: tenant}
	switch m := request.(type) {
	case *bridgev1.CreateSessionRequest:
		create, key.Operation, key.ID = m, backend.OpCreate, m.GetRequestId()
	case *bridgev1.ImportSessionRequest:
		return nil, "", true
	case *bridgev1.RunRequest:
		create, key.Operation, key.ID = m.GetCreate(), backend.OpRun, m.GetRequestId()
	case *bridgev1.AttachRequest:
		create = m.GetStart().GetCreate()
		key.Operation, key.ID = backend.OpAttach, create.GetRequestId()
	}
	return create.GetNodeLabels(), key.SessionID(), create != nil
}

// targetOf returns what a call is about; ok is false if it is about no session, or not valid.
func targetOf(ctx context.Context, request any) (to target, ok bool) {
	labels, name, creates := creation(caller.From(ctx).Tenant, request)
	ids := SessionsOf(request)
	switch {
	case slices.Contains(ids, ""):
	case len(ids) > 0:
		return target{ids[0], labels}, true
	case creates:
		return target{name, labels}, true
	}
	return to, false
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
