package manage_test

import (
	"context"
	"maps"
	"slices"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

type labels = map[string]string

// withLabels lists the ids of the sessions that have labels.
func withLabels(r *bridgetest.Bridge, l labels) (ids []string) {
	r.T.Helper()
	out, err := r.Sessions.ListSessions(r.T.Context(), &bridgev1.ListSessionsRequest{
		Filter: &bridgev1.SessionFilter{Labels: l},
	})
	if err != nil {
		r.T.Fatal(err)
	}
	for _, s := range out.GetSessions() {
		ids = append(ids, s.GetSessionId())
	}
	slices.Sort(ids)
	return ids
}

// labelsOf returns the labels of a session.
func labelsOf(r *bridgetest.Bridge, id string) labels {
	r.T.Helper()
	out, err := r.Sessions.GetSession(r.T.Context(), &bridgev1.GetSessionRequest{SessionId: id})
	if err != nil {
		r.T.Fatal(err)
	}
	return out.GetSession().GetLabels()
}

// Labels are on disk when UpdateLabels returns, come back with a disconnected session that is resumed, and select the
// sessions of ListSessions.
func TestLabelsOutliveTheBridge(t *testing.T) {
	t.Parallel()
	k := bridgetest.New(t, fakecli.Script{}, bridgetest.Stored)
	k.Create("s1", bridgetest.WithLabels(labels{"team": "red", "old": "x"}))
	k.Create("s2", bridgetest.WithLabels(labels{"team": "red"}))
	k.Create("s3")
	k.Ask("s2", "hi") // it has a history
	out, err := k.Sessions.UpdateLabels(t.Context(), &bridgev1.UpdateLabelsRequest{
		SessionId: "s1", Set: labels{"stage": "test"}, Remove: []string{"old"},
	})
	want := labels{"team": "red", "stage": "test"}
	if err != nil || !maps.Equal(out.GetSession().GetLabels(), want) {
		t.Fatalf("%v, %v", out, err)
	}
	k = k.Restart()
	if got := labelsOf(k, "s1"); !maps.Equal(got, want) {
		t.Errorf("after the restart: %v, want %v", got, want)
	}
	for _, test := range []struct {
		filter labels
		want   []string
	}{
		{labels{"team": "red"}, []string{"s1", "s2"}}, {want, []string{"s1"}}, {labels{"team": "blue"}, nil},
		{labels{"old": "x"}, nil}, {nil, []string{"s1", "s2", "s3"}},
	} {
		if got := withLabels(k, test.filter); !slices.Equal(got, test.want) {
			t.Errorf("sessions with %v: %q, want %q", test.filter, got, test.want)
		}
	}
	_, err = k.Sessions.DisconnectSession(t.Context(), &bridgev1.DisconnectSessionRequest{SessionId: "s2"})
	if err != nil {
		t.Fatal(err)
	}
	if got := withLabels(k, labels{"team": "red"}); !slices.Equal(got, []string{"s1"}) {
		t.Errorf("without the disconnected session: %q", got)
	}
	if _, err := k.Sessions.ResumeSession(t.Context(), &bridgev1.ResumeSessionRequest{SessionId: "s2"}); err != nil {
		t.Fatal(err)
	}
	if got := labelsOf(k, "s2"); !maps.Equal(got, labels{"team": "red"}) {
		t.Errorf("after the resume: %v", got)
	}
}

// Invalid labels name the field, and change nothing. Guests see labels and cannot change them.
func TestLabelsAreChecked(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{}, bridgetest.Tenants(quota.Limits{}))
	as := func(tenant string, class caller.Class) context.Context {
		return caller.With(t.Context(), caller.Caller{Tenant: tenant, Role: caller.Owner, Class: class})
	}
	create := func(id string, l labels) error {
		q := &bridgev1.CreateSessionRequest{SessionId: id, Labels: l}
		_, err := r.Sessions.CreateSession(as("a", caller.Own), q)
		return err
	}
	update := func(ctx context.Context, id string, set labels, remove ...string) error {
		_, err := r.Sessions.UpdateLabels(ctx, &bridgev1.UpdateLabelsRequest{SessionId: id, Set: set, Remove: remove})
		return err
	}
	list := func(f *bridgev1.SessionFilter) error {
		_, err := r.Sessions.ListSessions(as("a", caller.Read), &bridgev1.ListSessionsRequest{Filter: f})
		return err
	}
	watch := func(f *bridgev1.SessionFilter) error {
		return r.SessionWatch.WatchSessions(as("a", caller.Read), &bridgev1.WatchSessionsRequest{Filter: f},
			func() error { return nil }, func(*bridgev1.WatchSessionsResponse) error { return nil })
	}
	if err := create("s", labels{"team": "red"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Shares.ShareSession(as("a", caller.Own), &bridgev1.ShareSessionRequest{
		SessionId: "s", Tenant: "b", Access: bridgev1.ShareAccess_SHARE_ACCESS_PARTICIPATE,
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Shares.AcceptShare(as("b", caller.Own), &bridgev1.AcceptShareRequest{SessionId: "a/s"}); err != nil {
		t.Fatal(err)
	}
	bad, good, own := labels{"a b": "c"}, labels{"team": "b"}, as("a", caller.Own)
	for name, test := range map[string]struct {
		err    error
		reason fault.Reason
		field  string
	}{
		"create":          {create("t", bad), fault.InvalidField, "labels"},
		"set":             {update(own, "s", bad), fault.InvalidField, "set"},
		"remove":          {update(own, "s", nil, ""), fault.InvalidField, "remove[0]"},
		"list":            {list(&bridgev1.SessionFilter{Labels: bad}), fault.InvalidField, "filter.labels"},
		"watch":           {watch(&bridgev1.SessionFilter{Labels: bad}), fault.InvalidField, "filter.labels"},
		"no session":      {update(own, "none", nil), fault.SessionNotFound, "session_id"},
		"other tenant":    {update(as("b", caller.Own), "s", nil), fault.SessionNotFound, "session_id"},
		"guest":           {update(as("b", caller.Drive), "a/s", good), fault.Forbidden, "session_id"},
		"guest, as owner": {update(as("b", caller.Own), "a/s", good), fault.Forbidden, "session_id"},
	} {
		var f *fault.Error
		if e, ok := test.err.(*fault.Error); ok {
			f = e
		}
		if f == nil || f.Reason != test.reason || f.Field != test.field {
			t.Errorf("%s: %v, want %v at %q", name, test.err, test.reason, test.field)
		}
	}
	out, err := r.Sessions.GetSession(as("b", caller.Read), &bridgev1.GetSessionRequest{SessionId: "a/s"})
	if err != nil || !maps.Equal(out.GetSession().GetLabels(), labels{"team": "red"}) {
		t.Errorf("a guest gets %v, %v", out.GetSession().GetLabels(), err)
	}
}

// A server with labels creates the sessions that need them, and refuses sessions that need others.
func TestNodeLabelsOfOneServer(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{}, func(c *bridgetest.Options) { c.NodeLabels = labels{"disk": "a", "zone": "x"} })
	create := func(id string, l labels) (*bridgev1.CreateSessionResponse, error) {
		return r.Sessions.CreateSession(t.Context(), &bridgev1.CreateSessionRequest{SessionId: id, NodeLabels: l})
	}
	out, err := create("s1", labels{"disk": "a"})
	if err != nil || !maps.Equal(out.GetSession().GetNodeLabels(), labels{"disk": "a"}) {
		t.Errorf("created %v, %v", out, err)
	}
	for reason, l := range map[fault.Reason]labels{
		fault.NodeLabelsUnmet: {"disk": "a", "zone": "y"}, fault.InvalidField: {"a b": "c"},
	} {
		if _, err := create("s2", l); fault.ReasonOf(err) != reason {
			t.Errorf("labels %v: %v", l, err)
		}
	}
}
