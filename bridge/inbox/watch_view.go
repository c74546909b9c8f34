package inbox

import (
	"cmp"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// view is what a stream has sent to its reader. Only the stream's goroutine uses it.
type view struct {
	*request
	codec *wire.Codec
	send  func(*bridgev1.WatchPendingResponse) error
	// shown are the callbacks that the reader knows as pending, by id, with their times: an id may be asked again.
	shown map[*sessions.Entry]map[string]time.Time
}

// waitingIn is a callback that waits in a session. It does not retain the request.
type waitingIn struct {
	e       *sessions.Entry
	id      string
	created time.Time
}

// current sends all callbacks that wait, oldest first.
func (v *view) current(entries []*sessions.Entry) error {
	v.shown = map[*sessions.Entry]map[string]time.Time{}
	var all []waitingIn
	for _, e := range entries {
		if v.matches(e) {
			all = append(all, v.waiting(e)...)
		}
	}
	slices.SortFunc(all, func(a, b waitingIn) int {
		return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.e.Key(), b.e.Key()), cmp.Compare(a.id, b.id))
	})
	for _, w := range all {
		if err := v.add(w.e, w.id); err != nil {
			return err
		}
	}
	return v.send(&bridgev1.WatchPendingResponse{Change: &bridgev1.WatchPendingResponse_CaughtUp{
		CaughtUp: &bridgev1.PendingCaughtUp{},
	}})
}

// reset tells the reader to forget all callbacks.
func (v *view) reset() error {
	return v.send(&bridgev1.WatchPendingResponse{Change: &bridgev1.WatchPendingResponse_Reset_{
		Reset_: &bridgev1.PendingReset{},
	}})
}

// waiting returns the callbacks of a session that the filter selects.
func (v *view) waiting(e *sessions.Entry) (all []waitingIn) {
	for _, p := range e.Session.Callbacks().Registry().List() {
		if v.includesKind(e, p.Kind) {
			all = append(all, waitingIn{e, p.ID, p.Created})
		}
	}
	return all
}

// includesKind reports whether the filter selects callbacks of a kind that the caller may see in a session.
func (v *view) includesKind(e *sessions.Entry, k *callback.Kind) bool {
	return v.wants(k) && tenancy.Sees(e.Session, v.tenant, k)
}

// matches reports whether the caller sees a session, and the filter selects it.
func (v *view) matches(e *sessions.Entry) bool {
	return v.includes(e, e.Session.Labels(), caller.Read) && e.Session.Loader().Answerable() == nil
}

// follow sends what a change means to the reader.
func (v *view) follow(c change) error {
	switch {
	case c.resolved != nil:
		return v.remove(c.e, c.resolved)
	case c.kind == nil && !v.includes(c.e, c.e.Session.Labels(), caller.Read):
		return v.removeAll(c.e)
	case !v.matches(c.e):
		return nil
	case c.kind != nil:
		return v.add(c.e, c.id)
	}
	for _, w := range v.waiting(c.e) {
		if err := v.add(w.e, w.id); err != nil {
			return err
		}
	}
	return nil
}

// add sends a callback unless it has ended or the reader knows it.
func (v *view) add(e *sessions.Entry, id string) error {
	pending := e.Session.Callbacks().Registry()
	p, err := pending.Get(id)
	if err != nil || !v.includesKind(e, p.Kind) || v.shown[e][id].Equal(p.Created) {
		return nil
	}
	if v.shown[e] == nil {
		v.shown[e] = map[string]time.Time{}
	}
	v.shown[e][id] = p.Created
	name := tenancy.NameFor(e.Session, v.tenant)
	c, _ := v.codec.CallbackWithin(wire.InlineBytes, p, name, pending.Offered(p), translate.Tidy)
	return v.send(&bridgev1.WatchPendingResponse{Change: &bridgev1.WatchPendingResponse_Requested{Requested: c}})
}

// remove sends the end of a callback that the reader knows.
func (v *view) remove(e *sessions.Entry, n *session.Resolved) error {
	if _, known := v.shown[e][n.ID]; !known || !e.VisibleTo(v.tenant) {
		return nil
	}
	v.forget(e, n.ID)
	return v.send(&bridgev1.WatchPendingResponse{Change: &bridgev1.WatchPendingResponse_Resolved{
		Resolved: &bridgev1.PendingResolved{
			SessionId: tenancy.NameFor(e.Session, v.tenant), Resolved: n.Proto(v.tenant),
		},
	}})
}

func (v *view) forget(e *sessions.Entry, id string) {
	delete(v.shown[e], id)
	if len(v.shown[e]) == 0 {
		delete(v.shown, e)
	}
}

// removeAll tells the reader to forget a session's callbacks, if it knows any.
func (v *view) removeAll(e *sessions.Entry) error {
	if len(v.shown[e]) == 0 {
		return nil
	}
	delete(v.shown, e)
	return v.send(&bridgev1.WatchPendingResponse{Change: &bridgev1.WatchPendingResponse_Unmatched{
		Unmatched: &bridgev1.PendingUnmatched{SessionId: tenancy.NameFor(e.Session, v.tenant)},
	}})
}
