package watch

import (
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// notifying adds to each change the notification that the CLI would send.
func notifying(send func(*bridgev1.WatchSessionsResponse) error) func(*bridgev1.WatchSessionsResponse) error {
	return func(r *bridgev1.WatchSessionsResponse) error {
		if kind, ok := lifecycleTypes[r.GetChange()]; ok {
			r.Notification = &cliv1.CallbackSessionServiceLifecycleRequest{
				LifecycleType: kind, SessionId: r.GetSession().GetSessionId(),
			}
			if kind != cliv1.SessionLifecycleType_SESSION_LIFECYCLE_TYPE_SESSION_DELETED {
				r.Notification.Metadata = lifecycleMetadata(r.GetSession())
			}
		}
		return send(r)
	}
}

// lifecycleTypes are the changes that the CLI notifies of.
var lifecycleTypes = map[bridgev1.SessionChange]cliv1.SessionLifecycleType{
	bridgev1.SessionChange_SESSION_CHANGE_CREATED:    cliv1.SessionLifecycleType_SESSION_LIFECYCLE_TYPE_SESSION_CREATED,
	bridgev1.SessionChange_SESSION_CHANGE_UPDATED:    cliv1.SessionLifecycleType_SESSION_LIFECYCLE_TYPE_SESSION_UPDATED,
	bridgev1.SessionChange_SESSION_CHANGE_DELETED:    cliv1.SessionLifecycleType_SESSION_LIFECYCLE_TYPE_SESSION_DELETED,
	bridgev1.SessionChange_SESSION_CHANGE_FOREGROUND: cliv1.SessionLifecycleType_SESSION_LIFECYCLE_TYPE_SESSION_FOREGROUND,
	bridgev1.SessionChange_SESSION_CHANGE_BACKGROUND: cliv1.SessionLifecycleType_SESSION_LIFECYCLE_TYPE_SESSION_BACKGROUND,
}

func lifecycleMetadata(s *bridgev1.Session) *cliv1.SessionLifecycleMetadata {
	m := &cliv1.SessionLifecycleMetadata{StartTime: s.GetCreateTime(), ModifiedTime: s.GetUpdateTime()}
	if s.GetSummary() != "" {
		m.Summary = &s.Summary
	}
	return m
}
