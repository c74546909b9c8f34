package stream

import (
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// matcher passes the changes that a filter selects. It remembers which sessions its stream has reported as matching: at
// most the caller's sessions. Only the stream's goroutine uses it.
type matcher struct {
	filter   *bridgev1.SessionFilter
	reported map[*sessions.Entry]struct{} // nil without a filter
}

func newMatcher(f *bridgev1.SessionFilter) *matcher {
	m := &matcher{filter: f}
	m.reset()
	return m
}

// reset forgets what was reported.
func (m *matcher) reset() {
	if proto.Size(m.filter) > 0 {
		m.reported = map[*sessions.Entry]struct{}{}
	}
}

// pass returns the change to report for a change of e, nil for none. e is nil for sessions of the history that the
// bridge does not have, which match no filter.
func (m *matcher) pass(e *sessions.Entry, r *bridgev1.WatchSessionsResponse) *bridgev1.WatchSessionsResponse {
	if m.reported == nil {
		return r
	}
	_, reported := m.reported[e]
	switch {
	case r.GetChange() == bridgev1.SessionChange_SESSION_CHANGE_NOTIFICATION:
		if !reported {
			return nil
		}
	case ends(r.GetChange()):
		delete(m.reported, e)
		if !reported {
			return nil
		}
	case sessions.FitsFilter(r.GetSession(), m.filter):
		m.reported[e] = struct{}{}
	case reported:
		delete(m.reported, e)
		r.Change = bridgev1.SessionChange_SESSION_CHANGE_UNMATCHED
	default:
		return nil
	}
	return r
}

// ends reports whether a change ends the caller's use of the session.
func ends(what bridgev1.SessionChange) bool {
	return nameOnly(what) || what == bridgev1.SessionChange_SESSION_CHANGE_DISCONNECTED
}
