package app

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func wantCode(t *testing.T, what string, err error, want codes.Code) {
	t.Helper()
	if status.Code(err) != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// A session is shared with whom its owner names, for what he says, as long as he says, and
// after a restart too.
func TestSharing(t *testing.T) {
	t.Parallel()
	var config Config
	ts := startTenants(t, func(c *Config) { config = *c })
	ctx := t.Context()
	acme, rival := bridgev1.NewSessionServiceClient(ts.as("acme-owner")), bridgev1.NewSessionServiceClient(ts.as("rival"))
	thief := bridgev1.NewSessionServiceClient(ts.as("thief"))
	if _, err := acme.CreateSession(ctx, &bridgev1.CreateSessionRequest{SessionId: "s"}); err != nil {
		t.Fatal(err)
	}
	share := func(access bridgev1.ShareAccess) {
		t.Helper()
		out, err := acme.ShareSession(ctx, &bridgev1.ShareSessionRequest{SessionId: "s", Tenant: "rival", Access: access})
		if err != nil || len(out.GetShares()) != 1 || out.GetShares()[0].GetTenant() != "rival" || out.GetShares()[0].GetAccess() != access {
			t.Fatalf("share: %v, %v", out, err)
		}
	}
	look := func(c bridgev1.SessionServiceClient) error {
		_, err := c.ListEvents(ctx, &bridgev1.ListEventsRequest{SessionId: "s"})
		return err
	}
	say := func(c bridgev1.SessionServiceClient) error {
		_, err := c.SendAndWait(ctx, &bridgev1.SendAndWaitRequest{SessionId: "s", Prompt: &bridgev1.Prompt{Text: "hi"}})
		return err
	}
	wantShares := func(c bridgev1.SessionServiceClient, who string, want int) {
		t.Helper()
		got, err := c.GetSession(ctx, &bridgev1.GetSessionRequest{SessionId: "s"})
		if err != nil || len(got.GetSession().GetShares()) != want {
			t.Errorf("%s is told of shares: %v, %v, want %d", who, got.GetSession().GetShares(), err, want)
		}
		list, err := c.ListSessions(ctx, &bridgev1.ListSessionsRequest{})
		if err != nil || len(list.GetSessions()) != 1 || len(list.GetSessions()[0].GetShares()) != want {
			t.Errorf("%s is told in the list: %v, %v, want %d", who, list, err, want)
		}
	}
	wantCode(t, "a look before", look(rival), codes.NotFound)
	share(bridgev1.ShareAccess_SHARE_ACCESS_OBSERVE)
	wantCode(t, "an observer's look", look(rival), codes.OK)
	wantCode(t, "an observer's word", say(rival), codes.PermissionDenied)
	wantCode(t, "another's look", look(thief), codes.NotFound)
	wantShares(acme, "the owner", 1)
	wantShares(rival, "whom it is shared with", 0)
	share(bridgev1.ShareAccess_SHARE_ACCESS_PARTICIPATE)
	wantCode(t, "a participant's word", say(rival), codes.OK)
	_, err := rival.DeleteSession(ctx, &bridgev1.DeleteSessionRequest{SessionId: "s"})
	wantCode(t, "deleting it", err, codes.PermissionDenied)
	_, err = rival.ShareSession(ctx, &bridgev1.ShareSessionRequest{SessionId: "s", Tenant: "thief", Access: bridgev1.ShareAccess_SHARE_ACCESS_OBSERVE})
	wantCode(t, "passing it on", err, codes.PermissionDenied)
	for _, tenant := range []string{"", "acme", "No Tenant"} {
		_, err = acme.ShareSession(ctx, &bridgev1.ShareSessionRequest{SessionId: "s", Tenant: tenant, Access: bridgev1.ShareAccess_SHARE_ACCESS_OBSERVE})
		wantCode(t, "sharing with "+tenant, err, codes.InvalidArgument)
	}
	_, err = acme.ShareSession(ctx, &bridgev1.ShareSessionRequest{SessionId: "s", Tenant: "rival"})
	wantCode(t, "sharing for nothing", err, codes.InvalidArgument)

	ts.stop()
	ts.end(t)
	again := startTenants(t, func(c *Config) { c.DataDir, c.Policy = config.DataDir, config.Policy })
	acme, rival = bridgev1.NewSessionServiceClient(again.as("acme-owner")), bridgev1.NewSessionServiceClient(again.as("rival"))
	thief = bridgev1.NewSessionServiceClient(again.as("thief"))
	wantCode(t, "the owner's look after a restart", look(acme), codes.OK)
	wantCode(t, "a look after a restart", look(rival), codes.OK)
	wantCode(t, "another's look after a restart", look(thief), codes.NotFound)
	if _, err := acme.UnshareSession(ctx, &bridgev1.UnshareSessionRequest{SessionId: "s", Tenant: "rival"}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "a look afterwards", look(rival), codes.NotFound)
	wantShares(acme, "afterwards", 0)
}
