package bridge

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
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// asked puts callbacks in the registry of a session, one each second.
func (r *rig) asked(ctx context.Context, id string, from int, names ...string) {
	r.t.Helper()
	if _, err := r.Sessions.CreateSession(ctx, &bridgev1.CreateSessionRequest{SessionId: id}); err != nil && fault.ReasonOf(err) != fault.SessionExists {
		r.t.Fatal(err)
	}
	kind := callback.ForEvent(callback.PermissionRequested)
	for i, name := range names {
		p := &callback.Pending{ID: name, Kind: kind, Params: []byte(`{"requestId":"` + name + `"}`), Created: time.Unix(int64(from+i), 0)}
		if !r.store.Own(ctx, id).Session.Callbacks().Registry().Add(p, func(string) {}) {
			r.t.Fatalf("%s is not pending", name)
		}
	}
}

// inboxOf lists the pending callbacks of all pages.
func (r *rig) inboxOf(ctx context.Context, q *bridgev1.ListPendingRequest, between func()) (all []string, pages int) {
	r.t.Helper()
	for {
		out, err := r.Callbacks.ListPending(ctx, q)
		if err != nil {
			r.t.Fatal(err)
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
	r := newRig(t, fakecli.Script{}, inTenants(quota.Limits{}))
	as := func(tenant string) context.Context {
		return caller.With(t.Context(), caller.Caller{Tenant: tenant, Role: caller.Owner, Class: caller.Read})
	}
	r.asked(as("a"), "s1", 0, "c0", "c1")
	r.asked(as("a"), "s2", 1, "c1", "c2", "c3")
	r.asked(as("b"), "s1", 0, "secret")
	r.asked(as("b"), "given", 2, "shared")
	want := []string{"s1/c0", "s1/c1", "s2/c1", "s2/c2", "s2/c3"}
	for size := range int32(7) {
		got, pages := r.inboxOf(as("a"), &bridgev1.ListPendingRequest{PageSize: size}, func() {})
		if full := max(1, (len(want)+int(size)-1)/max(1, int(size))); size > 0 && pages != full || !slices.Equal(got, want) {
			t.Errorf("in pages of %d: %v in %d pages", size, got, pages)
		}
	}
	if got, _ := r.inboxOf(as("a"), &bridgev1.ListPendingRequest{SessionId: "s2", PageSize: 2}, func() {}); !slices.Equal(got, want[2:]) {
		t.Errorf("of one session: %v", got)
	}
	_, err := r.Shares.ShareSession(as("b"), &bridgev1.ShareSessionRequest{SessionId: "given", Tenant: "a", Access: bridgev1.ShareAccess_SHARE_ACCESS_OBSERVE})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := r.inboxOf(as("a"), &bridgev1.ListPendingRequest{}, func() {}); !slices.Equal(got, want) {
		t.Errorf("with a session that is offered: %v", got)
	}
	if _, err := r.Shares.AcceptShare(as("a"), &bridgev1.AcceptShareRequest{SessionId: "b/given"}); err != nil {
		t.Fatal(err)
	}
	got, _ := r.inboxOf(as("a"), &bridgev1.ListPendingRequest{}, func() {})
	if text := fmt.Sprint(got); !strings.Contains(text, "b/given/shared") || strings.Contains(text, "secret") || len(got) != 6 {
		t.Errorf("with a session that is shared: %v", got)
	}
	// An answer between two pages does not change the next page.
	got, _ = r.inboxOf(as("b"), &bridgev1.ListPendingRequest{PageSize: 1}, func() { r.store.Own(as("b"), "s1").Session.Callbacks().Registry().Done("secret") })
	if !slices.Equal(got, []string{"s1/secret", "given/shared"}) {
		t.Errorf("with an answer in between: %v", got)
	}
	for field, q := range map[string]*bridgev1.ListPendingRequest{
		"page_token": {PageToken: "?"}, "page_size": {PageSize: -1}, "session_id": {SessionId: "../x"},
	} {
		_, err := r.Callbacks.ListPending(as("a"), q)
		wantField(t, field, err, fault.InvalidField, field)
	}
}
