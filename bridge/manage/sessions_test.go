package manage_test

import (
	"strconv"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/climethods"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// The same request id of two tenants is of two requests, whichever call it comes with.
func TestRequestIDsAreATenantsOwn(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{}, bridgetest.Tenants(quota.Limits{}))
	sessions, messages := map[string]bool{}, map[string]bool{}
	for _, tenant := range []string{caller.HostTenant, "a", "b"} {
		ctx := caller.With(t.Context(), caller.Caller{Tenant: tenant, Role: caller.Owner})
		for range 2 {
			made, err := r.Sessions.CreateSession(ctx, &bridgev1.CreateSessionRequest{RequestId: "1"})
			if err != nil {
				t.Fatal(err)
			}
			sessions[made.GetSession().GetSessionId()] = true
		}
		if _, err := r.Sessions.CreateSession(ctx, &bridgev1.CreateSessionRequest{SessionId: "same-" + tenant}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			q := &cliv1.SessionServiceSendRequest{SessionId: "same-" + tenant, Prompt: "hello"}
			wire, err := proto.Marshal(q)
			if err != nil {
				t.Fatal(err)
			}
			out, err := r.CLI.CallCLI(ctx, climethods.All()["session.send"], wire, false, "1", nil)
			sent := &cliv1.SessionServiceSendResponse{}
			if err != nil || proto.Unmarshal(out, sent) != nil {
				t.Fatal(err)
			}
			messages[sent.GetMessageId()] = true
		}
	}
	if len(sessions) != 3 || len(messages) != 3 {
		t.Errorf("three tenants made the sessions %v and sent the messages %v, want three of each", sessions, messages)
	}
}

// Reads with a request id are made, each of them, and leave nothing to remember.
func TestReadsAreNotRemembered(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, fakecli.Script{}, bridgetest.Tenants(quota.Limits{RememberedRequests: 2}))
	look := caller.With(t.Context(), caller.Caller{Tenant: "a", Role: caller.Participant, Class: caller.Read})
	ping := func(text string) error {
		wire, err := proto.Marshal(&cliv1.ServerServicePingRequest{Message: &text})
		if err != nil {
			t.Fatal(err)
		}
		_, err = r.CLI.CallCLI(look, climethods.All()["ping"], wire, false, "1", nil)
		return err
	}
	for i := range 10 { // with other words each: the same id of other requests is no fault
		if err := ping(strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	own := caller.With(t.Context(), caller.Caller{Tenant: "a", Role: caller.Owner, Class: caller.Own})
	if _, err := r.Sessions.CreateSession(own, &bridgev1.CreateSessionRequest{RequestId: "1", SessionId: "s1"}); err != nil {
		t.Errorf("reads have used the tenant's quota: %v", err)
	}
	_, err := r.Sessions.CreateSession(own, &bridgev1.CreateSessionRequest{RequestId: "2", SessionId: "s2"})
	if fault.ReasonOf(err) != fault.LimitExceeded {
		t.Errorf("beyond half of the tenant's quota: %v", err)
	}
	if _, err := r.Sessions.CreateSession(own, &bridgev1.CreateSessionRequest{SessionId: "s3"}); err != nil {
		t.Errorf("without a request id: %v", err)
	}
}
