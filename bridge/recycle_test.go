package bridge

import (
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fleet"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// A worn runtime goes on with what is in it, and says that it takes no more; new sessions are
// in its successor, which has its number. When nothing is in it, it ends.
func TestRecycle(t *testing.T) {
	t.Parallel()
	l := newLives(t, func(int) fakecli.Script { return fakecli.Script{} })
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
	l.create("old")
	l.ask("old", "hello")
	if l.fleet.Sweep(); len(states()) != 1 || states()[ready] == nil {
		t.Errorf("without limits the runtimes are %v", states())
	}
	wear := func(w fleet.Wear) {
		t.Helper()
		now := l.tuned.Load().Tuning
		now.Wear = w
		if err := l.Tune(now); err != nil {
			t.Fatal(err)
		}
	}
	wear(fleet.Wear{Age: time.Nanosecond})
	l.fleet.Sweep()
	old := states()[stopping]
	if old == nil || old.GetLoadedSessions() != 1 || states()[ready] != nil {
		t.Fatalf("of age, the runtimes are %v", states())
	}
	wear(fleet.Wear{})
	l.create("new")
	if next := states()[ready]; next.GetIndex() != old.GetIndex() || next.GetProfileId() != old.GetProfileId() || next.GetRuntimeId() == old.GetRuntimeId() || next.GetLoadedSessions() != 1 {
		t.Errorf("the successor of %v is %v", old, next)
	}
	if out := l.ask("old", "still there"); out.GetText() != "You said: still there" {
		t.Errorf("the session in the old runtime says %v", out)
	}
	if n := l.fleet.Sweep(); n > 0 {
		t.Errorf("%d sessions are to move that have only just rested", n)
	}
	if _, err := l.Sessions.DisconnectSession(t.Context(), &bridgev1.DisconnectSessionRequest{SessionId: "old"}); err != nil {
		t.Fatal(err)
	}
	l.fleet.Sweep()
	eventually(t, "the old runtime's end", func() bool { return states()[stopping] == nil })
	if out := l.ask("new", "and on"); out.GetText() != "You said: and on" || states()[ready].GetLoadedSessions() != 1 {
		t.Errorf("then the runtimes are %v", states())
	}
}
