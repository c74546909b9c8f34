package server_test

import (
	"fmt"
	"testing"

	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

// many are services without methods.
type many int

// Register implements server.Service.
func (n many) Register(r grpc.ServiceRegistrar) {
	for i := range int(n) {
		r.RegisterService(&grpc.ServiceDesc{ServiceName: fmt.Sprintf("test.Service%d", i)}, nil)
	}
}

// List has all services, also if they are more than grpc-go lists.
func TestHealthList(t *testing.T) {
	t.Parallel()
	r := servertest.Start(t, server.Config{}, many(150), info{})
	list, err := healthv1.NewHealthClient(r.Conn).List(t.Context(), new(healthv1.HealthListRequest))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "test.Service149", "copilot.bridge.v1.RuntimeService"} {
		if list.GetStatuses()[name] == nil {
			t.Errorf("%q is missing in %d services", name, len(list.GetStatuses()))
		}
	}
}
