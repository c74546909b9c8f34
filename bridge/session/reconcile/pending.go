package reconcile

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

// Pending brings the pending tool calls and permissions in step with the CLI, and reports whether they
// were not. Those that the CLI does not wait for are withdrawn: an answer that was never given in an
// earlier process is not asked for again and again. Those that it waits for although they are not
// pending are asked again, so that no turn waits for an answer that no caller was asked for.
func (r *Reconciler) Pending(ctx context.Context, rt Runtime) (changed bool, err error) {
	pending := r.cfg.Callbacks.Registry()
	for method, list := range pendingLists {
		// Callbacks that are asked while the CLI makes its list are not in it.
		before := pending.List()
		var waiting pendingList
		result, err := rt.Call(ctx, list)
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
			if _, err := pending.Claim(p.ID); err == nil { // else an answer tells
				r.cfg.Callbacks.Finish(p, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_WITHDRAWN, "")
				changed = true
			}
		}
		for _, id := range again {
			changed = r.askAgain(ctx, rt, method, id) || changed
		}
	}
	return changed, nil
}

// askAgain asks for an answer that the CLI waits for and that is not pending: it was given to a
// runtime that ended before it had taken it in, or given up in vain. It reports whether it asked.
func (r *Reconciler) askAgain(ctx context.Context, rt Runtime, method, id string) (asked bool) {
	if _, err := r.cfg.Callbacks.Registry().Get(id); err == nil {
		return false
	}
	var found *journal.Record
	event.Scan(ctx, r.cfg.Journal, journal.Position{}, func(rec *journal.Record) bool {
		var d struct{ RequestID string }
		if rec.Type == method && event.Data(rec, &d) && d.RequestID == id {
			found = rec
		}
		return found == nil
	})
	r.cfg.Lock.Lock()
	defer r.cfg.Lock.Unlock()
	if found == nil || !rt.Current() {
		return false
	}
	r.cfg.Callbacks.Requested(r.cfg.Tx, callback.ForEvent(method), found)
	return true
}
