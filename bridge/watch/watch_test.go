package watch

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/registry"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// A change that was queued for a tenant's watcher is dropped when the session is no longer shared
// with the tenant. The watcher receives the end of the share.
func TestQueuedChangesEndWithTheShare(t *testing.T) {
	t.Parallel()
	svc, e := New(nil, nil), registry.NewEntry(runtime.Profile{})
	e.Session = session.New(session.Config{ID: "s", Host: struct{ session.Host }{}}) // the host is not called
	const updated = bridgev1.SessionChange_SESSION_CHANGE_UPDATED
	w := svc.subscribe("guest")
	defer w.Close()
	next := func() change {
		t.Helper()
		batch := w.Take()
		if len(batch.Values) != 1 {
			t.Fatalf("%d changes are queued, want one", len(batch.Values))
		}
		return batch.Values[0]
	}
	svc.Changed(e, updated)
	if len(w.Take().Values) != 0 {
		t.Error("a watcher receives a change of a session that is not shared")
	}
	e.Shares.Offer("guest", caller.Read)
	if svc.Changed(e, updated); len(w.Take().Values) != 0 {
		t.Error("a watcher receives a change of a session that is only offered")
	}
	e.Shares.Accept("guest")
	svc.Changed(e, updated)
	if c := next(); !c.visibleTo("guest") || c.response("guest").GetSession().GetSessionId() != "host/s" {
		t.Errorf("a watcher of a shared session receives %v", c.response("guest"))
	}
	svc.Changed(e, updated)
	e.Shares.Withdraw("guest")
	if c := next(); c.visibleTo("guest") {
		t.Error("a watcher receives a change of a session that is no longer shared")
	}
	svc.ChangedFor(e, "guest", bridgev1.SessionChange_SESSION_CHANGE_UNSHARED)
	c := next()
	if got := c.response("guest"); !c.visibleTo("guest") || got.GetSession().GetSessionId() != "host/s" || got.GetSession().GetState() != 0 {
		t.Errorf("a watcher receives %v at the end of the share", got)
	}
}
