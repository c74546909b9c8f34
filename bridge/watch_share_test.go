package bridge

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// A change that was queued for a tenant's watcher is not told any more once the session is not
// shared with the tenant; that it is not is told.
func TestQueuedChangesEndWithTheShare(t *testing.T) {
	t.Parallel()
	r := newRig(t, fakecli.Script{})
	r.create("s")
	e, err := r.find(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	const updated = bridgev1.SessionChange_SESSION_CHANGE_UPDATED
	w := r.watchChanges("guest")
	defer w.Close()
	next := func() change {
		t.Helper()
		batch := w.Take()
		if len(batch.Values) != 1 {
			t.Fatalf("%d changes are queued, want one", len(batch.Values))
		}
		return batch.Values[0]
	}
	r.changed(e, updated)
	if len(w.Take().Values) != 0 {
		t.Error("a watcher is told of a session that is not shared")
	}
	shares := &e.Shares
	shares.Offer("guest", caller.Read)
	if r.changed(e, updated); len(w.Take().Values) != 0 {
		t.Error("a watcher is told of a session that is only offered")
	}
	shares.Accept("guest")
	r.changed(e, updated)
	if c := next(); !concerns(c, "guest") || c.proto("guest").GetSession().GetSessionId() != "host/s" {
		t.Errorf("a watcher of a shared session is told %v", c.proto("guest"))
	}
	r.changed(e, updated)
	shares.Withdraw("guest")
	if c := next(); concerns(c, "guest") {
		t.Error("a watcher is told of a change to a session that is not shared any more")
	}
	r.tellGuests(e, "guest", bridgev1.SessionChange_SESSION_CHANGE_UNSHARED)
	c := next()
	if got := c.proto("guest"); !concerns(c, "guest") || got.GetSession().GetSessionId() != "host/s" || got.GetSession().GetState() != 0 {
		t.Errorf("a watcher is told %v of the share's end", got)
	}
}
