package fleet_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// Calls of guests leave room in the CLI for the owner's calls. Calls that guests have cancelled count until the
// CLI has finished them.
func TestGuestsLeaveRoomForTheOwner(t *testing.T) {
	t.Parallel()
	const method = "session.metadata.activity"
	r := bridgetest.New(t, fakecli.Script{Faults: []fakecli.MethodFault{{Method: method, Fault: fakecli.Fault{Kind: fakecli.FaultHang}}}})
	r.Create("s")
	s, err := r.Store().Open(t.Context(), "s")
	if err != nil {
		t.Fatal(err)
	}
	as := func(tenant string, class caller.Class) context.Context {
		return caller.With(t.Context(), caller.Caller{Tenant: tenant, Role: caller.Owner, Class: class})
	}
	for guest := range fleet.MaxGuestCalls/fleet.MaxGuestTenantCalls + 1 {
		for n := range fleet.MaxGuestTenantCalls + 1 {
			ctx, cancel := context.WithCancel(as(fmt.Sprint("guest", guest), caller.Read))
			before := cliCalls(r, method)
			ended := make(chan error, 1)
			go func() {
				_, _, err := s.Loader().Do(ctx, method, nil)
				ended <- err
			}()
			full := n == fleet.MaxGuestTenantCalls || guest == fleet.MaxGuestCalls/fleet.MaxGuestTenantCalls
			if full {
				var err error
				select {
				case err = <-ended:
				case <-time.After(20 * time.Second):
				}
				f, ok := fields.AsFault(err)
				if !ok || f.Reason != fault.LimitExceeded || f.RetryAfter <= 0 {
					t.Fatalf("call %d of guest %d: %v, want LIMIT_EXCEEDED and when to try again", n, guest, err)
				}
			} else {
				bridgetest.Eventually(t, "the call", func() bool { return cliCalls(r, method) > before })
			}
			cancel() // the CLI is still busy with it
			if !full {
				<-ended
			}
		}
	}
	for range 100 {
		if _, err := r.Sessions.GetSession(as(caller.HostTenant, caller.Read), &bridgev1.GetSessionRequest{SessionId: "s"}); err != nil {
			t.Fatalf("the owner's call: %v", err)
		}
	}
}

// cliCalls is how often the CLI was called.
func cliCalls(r *bridgetest.Bridge, method string) (n int) {
	for _, m := range r.FakeCLI().Log() {
		if m.Type == method {
			n++
		}
	}
	return n
}
