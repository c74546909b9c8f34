package manage_test

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// aged is a bridge on a home where sessions were used some time ago.
type aged struct {
	*bridgetest.Bridge
	ago *atomic.Int64 // what the CLI's clock is behind, a time.Duration
}

func newAged(t *testing.T, script fakecli.Script) aged {
	t.Helper()
	a := aged{ago: new(atomic.Int64)}
	a.Bridge = bridgetest.New(t, script, bridgetest.Stored, bridgetest.Now(a.now), bridgetest.Tenants(quota.Limits{}))
	return a
}

// now is the CLI's clock.
func (a aged) now() time.Time { return time.Now().Add(-time.Duration(a.ago.Load())) }

// used makes a session that was used last some time ago.
func (a aged) used(id string, ago time.Duration) {
	a.T.Helper()
	a.ago.Store(int64(ago))
	a.Create(id)
	a.Ask(id, "hello")
	a.AwaitOutbox(id)
}

// wantPruned checks which sessions PruneSessions deletes, and which it fails to delete.
func (a aged) wantPruned(what string, q *bridgev1.PruneSessionsRequest, ids, failed []string) {
	a.T.Helper()
	q.IdleFor = durationpb.New(time.Hour)
	out, err := a.Sessions.PruneSessions(a.T.Context(), q)
	if err != nil {
		a.T.Fatalf("%s: %v", what, err)
	}
	var failures []string
	for _, f := range out.GetFailures() {
		if failures = append(failures, f.GetSessionId()); f.GetFailure().GetMessage() == "" {
			a.T.Errorf("%s: the failure of %q has no message", what, f.GetSessionId())
		}
	}
	if !slices.Equal(out.GetSessionIds(), ids) || !slices.Equal(failures, failed) {
		a.T.Errorf("%s: deleted %q, failed %q; want %q and %q", what, out.GetSessionIds(), failures, ids, failed)
	}
}

// Deleted are sessions that were opened here, that only their own tenant can use, that are not in use, and whose last
// use was long ago.
func TestPruneSessions(t *testing.T) {
	t.Parallel()
	a := newAged(t, fakecli.Script{Prompts: []fakecli.Prompt{{Match: "work", Turns: []fakecli.Turn{{Hang: true}}}}})
	terminal := aged{bridgetest.New(t, fakecli.Script{}, bridgetest.Stored, bridgetest.Home(a.Home), bridgetest.Now(a.now)), a.ago}
	terminal.used("theirs", 5*time.Hour)
	a.used("stored", 4*time.Hour)
	a.Disconnect("stored")
	for _, id := range []string{"joined", "loaded", "offered", "watched"} {
		a.used(id, 3*time.Hour)
	}
	a.used("recent", 30*time.Minute)
	b := caller.With(t.Context(), caller.Caller{Tenant: "b", Role: caller.Owner, Class: caller.Own})
	a.ago.Store(int64(6 * time.Hour))
	a.Create("busy")
	hello := &bridgev1.Prompt{Text: "hello"}
	_, sent := a.Turns.Send(t.Context(), &bridgev1.SendRequest{SessionId: "busy", Prompt: &bridgev1.Prompt{Text: "work"}})
	_, created := a.Sessions.CreateSession(b, &bridgev1.CreateSessionRequest{SessionId: "others"})
	_, answered := a.Turns.SendAndWait(b, &bridgev1.SendAndWaitRequest{SessionId: "others", Prompt: hello})
	if err := errors.Join(sent, created, answered); err != nil {
		t.Fatal(err)
	}
	a.Attach("joined")
	a.Subscribe(&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: "watched"}}}).
		Frame("the start", func(f *bridgev1.SubscribeResponse) bool { return f.GetCaughtUp() != nil })
	if _, err := a.Shares.ShareSession(t.Context(), &bridgev1.ShareSessionRequest{
		SessionId: "offered", Tenant: "b", Access: bridgev1.ShareAccess_SHARE_ACCESS_OBSERVE,
	}); err != nil {
		t.Fatal(err)
	}
	left := []string{"busy", "joined", "offered", "recent", "watched"}
	opened := append([]string{"loaded", "stored"}, left...)
	a.wantPruned("a dry run", &bridgev1.PruneSessionsRequest{DryRun: true}, []string{"stored", "loaded"}, nil)
	a.wantPruned("a dry run of one", &bridgev1.PruneSessionsRequest{DryRun: true, MaxSessions: 1}, []string{"stored"}, nil)
	a.wantPruned("of a directory without sessions", &bridgev1.PruneSessionsRequest{
		Filter: &bridgev1.SessionFilter{WorkingDirectory: "/none"},
	}, nil, nil)
	wantListed(a.Bridge, "before", sorted(opened), sorted(opened, "others", "theirs"))
	a.wantPruned("all", &bridgev1.PruneSessionsRequest{}, []string{"stored", "loaded"}, nil)
	a.wantPruned("again", &bridgev1.PruneSessionsRequest{}, nil, nil)
	wantListed(a.Bridge, "after", left, sorted(left, "others", "theirs"))
}

// sorted returns ids and more ids in order.
func sorted(ids []string, more ...string) []string {
	return slices.Sorted(slices.Values(slices.Concat(ids, more)))
}

// A session that cannot be deleted is reported, remains, and does not keep others from being deleted.
func TestPruneContinuesAfterAFailure(t *testing.T) {
	t.Parallel()
	a := newAged(t, fakecli.Script{Faults: []fakecli.MethodFault{{Method: "session.delete", Times: 1,
		Fault: fakecli.Fault{Kind: fakecli.FaultError, Code: -32603, Message: "the disk is full"}}}})
	a.used("first", 3*time.Hour)
	a.used("second", 2*time.Hour)
	a.wantPruned("with a failure", &bridgev1.PruneSessionsRequest{}, []string{"second"}, []string{"first"})
	wantListed(a.Bridge, "after the failure", []string{"first"}, []string{"first"})
	a.wantPruned("again", &bridgev1.PruneSessionsRequest{}, []string{"first"}, nil)
}

// Sessions that were evicted from memory, or come from before a restart, are deleted too.
func TestPruneEvictedSessions(t *testing.T) {
	t.Parallel()
	a := newAged(t, fakecli.Script{})
	a.used("s", 2*time.Hour)
	a.Disconnect("s")
	for i := range sessions.MaxDisconnected {
		id := fmt.Sprint("later", i)
		a.Create(id)
		a.Disconnect(id)
	}
	bridgetest.Eventually(t, "the session to be out of memory", func() bool { return a.Store().Get("s") == nil })
	a.wantPruned("evicted", &bridgev1.PruneSessionsRequest{DryRun: true}, []string{"s"}, nil)
	a.Store().SaveDirty() // Disconnect does not wait for that
	next := aged{a.Restart(), a.ago}
	next.wantPruned("after a restart", &bridgev1.PruneSessionsRequest{}, []string{"s"}, nil)
	wantListed(next.Bridge, "at last", nil, nil)
	if next.Directory.Knows("s") {
		t.Error("the directory has the deleted session")
	}
}

// A request without a time, or with a field out of bounds, deletes nothing.
func TestPruneIsChecked(t *testing.T) {
	t.Parallel()
	a := newAged(t, fakecli.Script{})
	a.used("s", 2*time.Hour)
	hour := durationpb.New(time.Hour)
	for field, q := range map[string]*bridgev1.PruneSessionsRequest{
		"idle_for":      {},
		"max_sessions":  {IdleFor: hour, MaxSessions: 1001},
		"filter.labels": {IdleFor: hour, Filter: &bridgev1.SessionFilter{Labels: labels{"a b": "c"}}},
	} {
		_, err := a.Sessions.PruneSessions(t.Context(), q)
		if f, _ := fields.AsFault(err); f == nil || f.Reason != fault.InvalidField || f.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, idle := range []time.Duration{-time.Hour, 0, time.Minute - 1} {
		_, err := a.Sessions.PruneSessions(t.Context(), &bridgev1.PruneSessionsRequest{IdleFor: durationpb.New(idle)})
		if f, _ := fields.AsFault(err); f == nil || f.Field != "idle_for" {
			t.Errorf("idle for %v: %v", idle, err)
		}
	}
	wantListed(a.Bridge, "after the errors", []string{"s"}, []string{"s"})
}
