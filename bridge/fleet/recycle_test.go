package fleet_test

import (
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fleet"
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet/placement"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// A worn runtime goes on with what is in it, and says that it takes no more; new sessions are
// in its successor, which has its number. When nothing is in it, it ends.
func TestRecycle(t *testing.T) {
	t.Parallel()
	l := bridgetest.New(t, fakecli.Script{}, bridgetest.Restarts)
	states := func() map[bridgev1.RuntimeState]*bridgev1.RuntimeInfo {
		t.Helper()
		list, err := l.Runtimes.ListRuntimes(t.Context(), &bridgev1.ListRuntimesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		out := map[bridgev1.RuntimeState]*bridgev1.RuntimeInfo{}
		for _, rt := range list.GetRuntimes() {
			out[rt.GetState()] = rt
		}
		return out
	}
	const ready, stopping = bridgev1.RuntimeState_RUNTIME_STATE_READY, bridgev1.RuntimeState_RUNTIME_STATE_STOPPING
	l.Create("old")
	l.Ask("old", "hello")
	if l.Fleet().Sweep(); len(states()) != 1 || states()[ready] == nil {
		t.Errorf("without limits the runtimes are %v", states())
	}
	wear := func(w fleet.Wear) {
		t.Helper()
		l.Fleet().Tune(fleet.Tuning{
			Placement: placement.Config{Idle: placement.DefaultIdle}, IdleUnload: fleet.DefaultIdleUnload,
			ConfinementGrace: fleet.DefaultConfinementGrace, Wear: w,
		})
	}
	wear(fleet.Wear{Age: time.Nanosecond})
	l.Fleet().Sweep()
	old := states()[stopping]
	if old == nil || old.GetLoadedSessions() != 1 || states()[ready] != nil {
		t.Fatalf("of age, the runtimes are %v", states())
	}
	wear(fleet.Wear{})
	l.Create("new")
	if next := states()[ready]; next.GetIndex() != old.GetIndex() || next.GetProfileId() != old.GetProfileId() || next.GetRuntimeId() == old.GetRuntimeId() || next.GetLoadedSessions() != 1 {
		t.Errorf("the successor of %v is %v", old, next)
	}
	if out := l.Ask("old", "still there"); out.GetText() != "You said: still there" {
		t.Errorf("the session in the old runtime says %v", out)
	}
	if n := l.Fleet().Sweep(); n > 0 {
		t.Errorf("%d sessions are to move that have only just rested", n)
	}
	if _, err := l.Sessions.DisconnectSession(t.Context(), &bridgev1.DisconnectSessionRequest{SessionId: "old"}); err != nil {
		t.Fatal(err)
	}
	l.Fleet().Sweep()
	bridgetest.Eventually(t, "the old runtime's end", func() bool { return states()[stopping] == nil })
	if out := l.Ask("new", "and on"); out.GetText() != "You said: and on" || states()[ready].GetLoadedSessions() != 1 {
		t.Errorf("then the runtimes are %v", states())
	}
}
