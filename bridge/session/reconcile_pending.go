package session

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
)

// The methods that list what the CLI waits for.
const (
	listPermissions = "session.permissions.pendingRequests"
	listTools       = "session.tools.listPendingRequests"
)

// pendingLists are these methods with the events that ask for it.
var pendingLists = []struct{ event, list string }{
	{callback.PermissionRequested, listPermissions}, {callback.ToolRequested, listTools},
}

// pending reconciles the pending tool calls and permissions with the CLI's lists, and returns how many it has asked, and
// the ids of those that it has withdrawn. It withdraws callbacks that the CLI does not wait for. If the CLI waits for a
// callback that is not pending, pending requests it from callers again: otherwise the turn would never end.
func (r *Reconciler) pending(ctx context.Context, rt Runtime) (asked int, withdrawn []string, err error) {
	pending := r.s.callbacks.Registry()
	for _, of := range pendingLists {
		// The CLI's list can lack callbacks that it asks while it makes the list, and can have callbacks that
		// end before the reply is read.
		ends, before, began := pending.Ends(), pending.List(), r.s.journal.Last()
		var waiting struct{ Items []struct{ RequestID string } }
		err := r.s.query(ctx, rt, of.list, nil, &waiting)
		if fault.ReasonOf(err) == fault.MethodUnknown {
			continue // CLI 1.0.81 cannot list the tool calls that it waits for
		}
		if err != nil {
			return asked, withdrawn, err
		}
		awaited := map[string]bool{}
		for _, item := range waiting.Items {
			id := item.RequestID
			if r.lingering[id] {
				continue
			}
			awaited[id] = true
			pending.Awaited(id, ends)
			if !pending.EndedSince(id, ends) && r.askAgain(ctx, rt, of.event, id, began) {
				asked++
			}
		}
		for _, p := range before {
			if p.Kind.Method == of.event && !awaited[p.ID] && r.s.callbacks.over(p.ID) {
				withdrawn = append(withdrawn, p.ID)
			}
		}
	}
	return asked, withdrawn, nil
}

// pendingSoon has pending run in the background, after a load if there is one: the CLI may still wait for a callback that has
// ended without an answer. If the runtime ends, the next load makes up for it.
func (r *Reconciler) pendingSoon() {
	r.s.host.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, loadedTimeout)
		defer cancel()
		_ = r.s.loader.exclusive(ctx, func() error {
			r.s.mu.Lock()
			rt, loaded := r.s.loader.runtime, r.s.loader.state == Loaded
			r.s.mu.Unlock()
			if !loaded {
				return nil
			}
			_, _, err := r.pending(ctx, rt)
			return err
		})
	})
}

// askAgain makes a callback pending again that the CLI waits for and that has ended: a runtime ended before
// it processed the answer, or the bridge's own answer did not reach it. The CLI made its list behind began: it does not wait any
// more if an abort has come since. askAgain reports whether it asked.
func (r *Reconciler) askAgain(ctx context.Context, rt Runtime, method, id string, began journal.Position) (asked bool) {
	if _, err := r.s.callbacks.Registry().Get(id); err == nil {
		return false
	}
	var found *journal.Record
	for rec := range event.Since(ctx, r.s.journal, journal.Position{}) {
		switch {
		case found == nil && rec.Type == method && event.Text(rec, "requestId") == id:
			found = rec
		case rec.Type == "abort" && rec.Agent == "" && began.Before(rec.Pos):
			return false
		}
	}
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if found == nil || r.s.loader.runtime != rt || r.s.loader.state != Loaded {
		return false
	}
	r.s.callbacks.requested(callback.ForEvent(method), found)
	return true
}
