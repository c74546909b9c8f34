package fleet_test

import (
	"context"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// A caller that ends does not wait until a hung CLI has listed its own tools, and does not end the question. Others
// who want to know the names wait for the same one.
func TestBuiltInsOfAHungCLI(t *testing.T) {
	t.Parallel()
	const method = "session.create" // the question comes with a session of its own
	r := bridgetest.New(t, fakecli.Script{Faults: []fakecli.MethodFault{{Method: method, Fault: fakecli.Fault{Kind: fakecli.FaultHang}}}})
	err := r.Abandon(method, func(ctx context.Context) error {
		_, err := r.Sessions.CreateSession(ctx, &bridgev1.CreateSessionRequest{
			Config: &cliv1.SessionConfig{Tools: []*cliv1.ToolDefinition{{Name: "lookup"}}},
		})
		return err
	})
	if err == nil {
		t.Fatal("created by a hung CLI")
	}
	rt := r.Fleet().Visible(caller.From(t.Context()))[0]
	first := fleet.AskBuiltIns(r.Fleet(), rt)
	if second := fleet.AskBuiltIns(r.Fleet(), rt); second != first {
		t.Error("the CLI is asked once for each")
	}
	conn := rt.Process().Conn()
	if s := conn.Stats(); s.InFlight != 1 || s.Abandoned != 0 {
		t.Errorf("when the caller has gone, %d calls are in flight and %d were abandoned", s.InFlight, s.Abandoned)
	}
}
