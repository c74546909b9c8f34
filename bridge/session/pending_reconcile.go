package session

import (
	"context"
	"encoding/json"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/history"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// pendingLists are the methods by which the CLI tells what it waits for.
var pendingLists = map[string]string{
	callback.PermissionRequested: "session.permissions.pendingRequests",
	callback.ToolRequested:       "session.tools.listPendingRequests",
}

// pendingList is what they answer.
type pendingList struct{ Items []struct{ RequestID string } }

func (l pendingList) ids() (ids []string) {
	for _, item := range l.Items {
		ids = append(ids, item.RequestID)
	}
	return ids
}

// reconcilePending brings the tool calls and permissions that are pending in step with the CLI, and
// reports whether they were not. What it no longer waits for is withdrawn, so that what was
// never answered in some earlier life is not asked for ever. What it waits for although
// nothing is pending is asked again, so that no turn waits for an answer that nobody gives.
func (s *Session) reconcilePending(ctx context.Context, rt Runtime) (changed bool, err error) {
	for method, list := range pendingLists {
		// What is asked while the CLI is asked is not in its list, and no business of it.
		before := s.callbacks.Registry().List()
		var waiting pendingList
		result, _, err := s.call(ctx, rt, list, nil)
		if fault.ReasonOf(err) == fault.MethodUnknown {
			continue // CLI 1.0.81 cannot tell which tool calls it waits for
		}
		if err != nil {
			return changed, err
		}
		if err := json.Unmarshal(result, &waiting); err != nil {
			return changed, fault.Wrap(err, fault.CLIProtocolError, "reading the result of %s", list)
		}
		withdraw, again := history.Waiting(method, before, waiting.ids())
		for _, p := range withdraw {
			if _, err := s.callbacks.Registry().Claim(p.ID); err == nil { // else somebody's answer tells
				s.callbacks.Finish(p, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN, "")
				changed = true
			}
		}
		for _, id := range again {
			changed = s.askAgain(ctx, rt, method, id) || changed
		}
	}
	return changed, nil
}

// askAgain asks for an answer that the CLI waits for and that is not pending: it was given
// to a runtime that ended before it had taken it in, or given up in vain. It reports whether
// there was need to.
func (s *Session) askAgain(ctx context.Context, rt Runtime, method, id string) (asked bool) {
	if _, err := s.callbacks.Registry().Get(id); err == nil {
		return false
	}
	var found *journal.Record
	event.Scan(ctx, s.journal, journal.Position{}, func(rec *journal.Record) bool {
		var d struct{ RequestID string }
		if rec.Type == method && event.Data(rec, &d) && d.RequestID == id {
			found = rec
		}
		return found == nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if found == nil || s.runtime != rt || s.state != Loaded {
		return false
	}
	s.callbacks.Requested(locked{s}, callback.ForEvent(method), found)
	return true
}
