package inbox_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// asked puts callbacks in the registry of a session, one each second.
func asked(ctx context.Context, r *bridgetest.Bridge, id string, from int, names ...string) {
	r.T.Helper()
	if _, err := r.Sessions.CreateSession(ctx, &bridgev1.CreateSessionRequest{SessionId: id}); err != nil && fault.ReasonOf(err) != fault.SessionExists {
		r.T.Fatal(err)
	}
	kind := callback.ForEvent(callback.PermissionRequested)
	for i, name := range names {
		p := &callback.Pending{ID: name, Kind: kind, Params: []byte(`{"requestId":"` + name + `"}`), Created: time.Unix(int64(from+i), 0)}
		if !r.Store().Own(ctx, id).Session.Callbacks().Registry().Add(p, func(string) {}) {
			r.T.Fatalf("%s is not pending", name)
		}
	}
}

// inboxOf lists the pending callbacks of all pages.
func inboxOf(ctx context.Context, r *bridgetest.Bridge, q *bridgev1.ListPendingRequest, between func()) (all []string, pages int) {
	r.T.Helper()
	for {
		out, err := r.Callbacks.ListPending(ctx, q)
		if err != nil {
			r.T.Fatal(err)
		}
		for _, c := range out.GetCallbacks() {
			all = append(all, c.GetSessionId()+"/"+c.GetCallbackId())
		}
		pages++
		if q.PageToken = out.GetNextPageToken(); q.PageToken == "" {
			return all, pages
		}
		between()
	}
}

// Without a session, ListPending lists what waits in all sessions that the caller may know of,
// in pages, oldest first.
func TestInbox(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{}, bridgetest.Tenants(quota.Limits{}))
	as := func(tenant string) context.Context {
		return caller.With(t.Context(), caller.Caller{Tenant: tenant, Role: caller.Owner, Class: caller.Read})
	}
	asked(as("a"), r, "s1", 0, "c0", "c1")
	asked(as("a"), r, "s2", 1, "c1", "c2", "c3")
	asked(as("b"), r, "s1", 0, "secret")
	asked(as("b"), r, "given", 2, "shared")
	want := []string{"s1/c0", "s1/c1", "s2/c1", "s2/c2", "s2/c3"}
	for size := range int32(7) {
		got, pages := inboxOf(as("a"), r, &bridgev1.ListPendingRequest{PageSize: size}, func() {})
		if full := max(1, (len(want)+int(size)-1)/max(1, int(size))); size > 0 && pages != full || !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %v in %d pages", size, got, pages)
		}
	}
	if got, _ := inboxOf(as("a"), r, &bridgev1.ListPendingRequest{SessionId: "s2", PageSize: 2}, func() {}); !slices.Equal(got, want[2:]) {
		t.Errorf("of one session: %v", got)
	}
	_, err := r.Shares.ShareSession(as("b"), &bridgev1.ShareSessionRequest{SessionId: "given", Tenant: "a", Access: bridgev1.ShareAccess_SHARE_ACCESS_OBSERVE})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := inboxOf(as("a"), r, &bridgev1.ListPendingRequest{}, func() {}); !slices.Equal(got, want) {
		t.Errorf("with a session that is offered: %v", got)
	}
	if _, err := r.Shares.AcceptShare(as("a"), &bridgev1.AcceptShareRequest{SessionId: "b/given"}); err != nil {
		t.Fatal(err)
	}
	got, _ := inboxOf(as("a"), r, &bridgev1.ListPendingRequest{}, func() {})
	if text := fmt.Sprint(got); !strings.Contains(text, "b/given/shared") || strings.Contains(text, "secret") || len(got) != 6 {
		t.Errorf("with a session that is shared: %v", got)
	}
	// An answer between two pages does not change the next page.
	got, _ = inboxOf(as("b"), r, &bridgev1.ListPendingRequest{PageSize: 1}, func() {
		registry := r.Store().Own(as("b"), "s1").Session.Callbacks().Registry()
		p, _ := registry.Get("secret")
		registry.Done(p)
	})
	if !slices.Equal(got, []string{"s1/secret", "given/shared"}) {
		t.Errorf("with an answer in between: %v", got)
	}
	for field, q := range map[string]*bridgev1.ListPendingRequest{
		"page_token": {PageToken: "?"}, "page_size": {PageSize: -1}, "session_id": {SessionId: "../x"},
	} {
		_, err := r.Callbacks.ListPending(as("a"), q)
		bridgetest.WantFault(t, field, err, fault.InvalidField, field)
	}
}
