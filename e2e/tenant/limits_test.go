package tenant

import (
	"testing"

	"google.golang.org/grpc"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// pid is the process of a tenant's one runtime.
func (r *tenants) pid(conn *grpc.ClientConn) int64 {
	r.T.Helper()
	list, err := bridgev1.NewRuntimeServiceClient(conn).ListRuntimes(r.Ctx, &bridgev1.ListRuntimesRequest{})
	if err != nil || len(list.GetRuntimes()) != 1 {
		r.T.Fatalf("runtimes: %v, %v", list.GetRuntimes(), err)
	}
	return list.GetRuntimes()[0].GetPid()
}

// A tenant's CLI process that has more memory than the policy lets it is ended; that of
// another tenant is not.
func TestMemoryLimitOfATenant(t *testing.T) {
	t.Parallel()
	r := newTenants(t, harness.Echo, ", limits: {runtime_memory_bytes: 1048576}")
	acme, rival := r.as("acme"), r.as("rival")
	r.create(rival, "small", nil)
	r.ask(rival, "small", "hello")
	before := r.pid(rival)
	r.create(acme, "fat", nil)
	stream, err := bridgev1.NewEventServiceClient(acme).Subscribe(r.Ctx,
		&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: "fat"}}})
	for cause := ""; cause == ""; {
		var f *bridgev1.SubscribeResponse
		if err == nil {
			f, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		cause = f.GetRuntimeRestarted().GetCause()
	}
	r.ask(rival, "small", "hello again")
	if after := r.pid(rival); after != before {
		t.Errorf("the other tenant's process %d became %d", before, after)
	}
}
