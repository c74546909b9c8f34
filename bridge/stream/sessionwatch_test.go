package stream

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// A filtered stream reports a session from when it matches, its end with UNMATCHED, and nothing else of it.
func TestFilteredChanges(t *testing.T) {
	t.Parallel()
	const (
		current      = bridgev1.SessionChange_SESSION_CHANGE_CURRENT
		created      = bridgev1.SessionChange_SESSION_CHANGE_CREATED
		updated      = bridgev1.SessionChange_SESSION_CHANGE_UPDATED
		deleted      = bridgev1.SessionChange_SESSION_CHANGE_DELETED
		disconnected = bridgev1.SessionChange_SESSION_CHANGE_DISCONNECTED
		unmatched    = bridgev1.SessionChange_SESSION_CHANGE_UNMATCHED
		none         = bridgev1.SessionChange_SESSION_CHANGE_UNSPECIFIED
	)
	type labels = map[string]string
	red, blue := labels{"team": "red", "more": "x"}, labels{"team": "blue"}
	type step struct {
		what   bridgev1.SessionChange
		labels map[string]string
		want   bridgev1.SessionChange
	}
	for name, steps := range map[string][]step{
		"matches at the start": {
			{current, red, current}, {updated, red, updated}, {deleted, nil, deleted}, {deleted, nil, none},
		},
		"matches later":        {{current, blue, none}, {updated, blue, none}, {updated, red, updated}},
		"matches when created": {{created, red, created}},
		"matches no longer": {
			{current, red, current}, {updated, blue, unmatched}, {updated, blue, none}, {deleted, nil, none},
		},
		"matches again": {{current, red, current}, {updated, nil, unmatched}, {updated, red, updated}},
		"never matches": {{created, blue, none}, {disconnected, blue, none}},
		"ends":          {{current, red, current}, {disconnected, red, disconnected}, {updated, red, updated}},
	} {
		m, all := newMatcher(&bridgev1.SessionFilter{Labels: labels{"team": "red"}}), newMatcher(&bridgev1.SessionFilter{})
		e := sessions.NewEntry(runtime.Profile{})
		for i, s := range steps {
			r := &bridgev1.WatchSessionsResponse{Change: s.what, Session: &bridgev1.Session{Labels: s.labels}}
			if got := all.pass(e, r); got.GetChange() != s.what {
				t.Errorf("%s, step %d: an empty filter passes %v as %v", name, i, s.what, got.GetChange())
			}
			if got := m.pass(e, r); got.GetChange() != s.want {
				t.Errorf("%s, step %d: %v, want %v", name, i, got.GetChange(), s.want)
			}
		}
	}
	m := newMatcher(&bridgev1.SessionFilter{Labels: red})
	if m.pass(nil, &bridgev1.WatchSessionsResponse{Change: deleted}) != nil {
		t.Error("a filtered stream reports the deletion of a session that the bridge does not have")
	}
}

// A change that was queued for a tenant's watcher is dropped when the session is no longer shared
// with the tenant. The watcher receives the end of the share.
func TestQueuedChangesEndWithTheShare(t *testing.T) {
	t.Parallel()
	svc, e := NewSessionWatch(nil, nil, nil), sessions.NewEntry(runtime.Profile{})
	e.Session = session.New(session.Config{ID: "s", Host: struct{ session.Host }{}}) // the host is not called
	const updated = bridgev1.SessionChange_SESSION_CHANGE_UPDATED
	w := svc.subscribe("guest", false)
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

// appearing has another session when open was called.
type appearing struct{ sessions []*sessions.Entry }

func (a *appearing) Visible(context.Context) []*sessions.Entry { return a.sessions }

// A session that is created after the watch is open is reported as created, and not as current.
func TestCreatedAfterTheWatchIsOpen(t *testing.T) {
	t.Parallel()
	entry := func(id string) *sessions.Entry {
		e := sessions.NewEntry(runtime.Profile{})
		e.Session = session.New(session.Config{ID: id, Host: struct{ session.Host }{}})
		return e
	}
	there := &appearing{sessions: []*sessions.Entry{entry("old")}}
	svc, done := NewSessionWatch(there, shutdown.New(), nil), errors.New("enough")
	var got []string
	err := svc.WatchSessions(t.Context(), &bridgev1.WatchSessionsRequest{},
		func() error {
			e := entry("new")
			there.sessions = append(there.sessions, e)
			svc.Changed(e, bridgev1.SessionChange_SESSION_CHANGE_CREATED)
			return nil
		}, func(r *bridgev1.WatchSessionsResponse) error {
			got = append(got, r.GetChange().String()+" "+r.GetSession().GetSessionId())
			if len(got) == 2 {
				return done
			}
			return nil
		})
	want := []string{"SESSION_CHANGE_CURRENT old", "SESSION_CHANGE_CREATED new"}
	if !errors.Is(err, done) || !slices.Equal(got, want) {
		t.Errorf("the changes are %q, %v, want %q", got, err, want)
	}
}
