package bridge

import (
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

func TestWear(t *testing.T) {
	t.Parallel()
	limits := Wear{Age: time.Hour, RSS: 1 << 30, Latency: time.Second}
	for _, test := range []struct {
		wear   Wear
		age    time.Duration
		health runtime.Health
		want   string
	}{
		{limits, time.Minute, runtime.Health{RSS: 1 << 20, Latency: time.Millisecond}, ""},
		{limits, time.Hour, runtime.Health{}, "it is 1h0m0s old"},
		{limits, 0, runtime.Health{RSS: 1 << 30}, "it has 1073741824 bytes of memory"},
		{limits, 0, runtime.Health{Latency: 1500 * time.Millisecond}, "it took 1.5s to answer"},
		{Wear{}, 0, runtime.Health{Unanswered: maxUnanswered}, "it has not answered 2048 cancelled calls"},
		{Wear{RSS: 1}, 1000 * time.Hour, runtime.Health{Latency: time.Hour}, ""},
		{Wear{}, 1000 * time.Hour, runtime.Health{RSS: 1 << 50, Latency: time.Hour}, ""},
	} {
		if got := test.wear.of(test.age, test.health); got != test.want {
			t.Errorf("%+v of %v, %+v: %q, want %q", test.wear, test.age, test.health, got, test.want)
		}
	}
}

// A worn runtime goes on with what is in it, and says that it takes no more; new sessions are
// in its successor, which has its number. When nothing is in it, it ends.
func TestRecycle(t *testing.T) {
	t.Parallel()
	l := newLives(t, func(int) fakecli.Script { return fakecli.Script{} })
	states := func() map[bridgev1.RuntimeState]*bridgev1.Runtime {
		t.Helper()
		list, err := l.ListRuntimes(t.Context(), &bridgev1.ListRuntimesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		out := map[bridgev1.RuntimeState]*bridgev1.Runtime{}
		for _, rt := range list.GetRuntimes() {
			out[rt.GetState()] = rt
		}
		return out
	}
	const ready, stopping = bridgev1.RuntimeState_RUNTIME_STATE_READY, bridgev1.RuntimeState_RUNTIME_STATE_STOPPING
	l.create("old")
	l.ask("old", "hello")
	if l.recycle(nil); len(states()) != 1 || states()[ready] == nil {
		t.Errorf("without limits the runtimes are %v", states())
	}
	wear := func(w Wear) {
		t.Helper()
		now := l.tuned.Load().Tuning
		now.Wear = w
		if err := l.Tune(now); err != nil {
			t.Fatal(err)
		}
	}
	wear(Wear{Age: time.Nanosecond})
	l.recycle(nil)
	old := states()[stopping]
	if old == nil || old.GetLoadedSessions() != 1 || states()[ready] != nil {
		t.Fatalf("of age, the runtimes are %v", states())
	}
	wear(Wear{})
	l.create("new")
	if next := states()[ready]; next.GetShard() != old.GetShard() || next.GetProfileId() != old.GetProfileId() || next.GetRuntimeId() == old.GetRuntimeId() || next.GetLoadedSessions() != 1 {
		t.Errorf("the successor of %v is %v", old, next)
	}
	if out := l.ask("old", "still there"); out.GetText() != "You said: still there" {
		t.Errorf("the session in the old runtime says %v", out)
	}
	if list := l.recycle(nil); len(list) > 0 {
		t.Errorf("%d sessions are to move that have only just rested", len(list))
	}
	if _, err := l.DisconnectSession(t.Context(), &bridgev1.DisconnectSessionRequest{SessionId: "old"}); err != nil {
		t.Fatal(err)
	}
	l.recycle(nil)
	eventually(t, "the old runtime's end", func() bool { return states()[stopping] == nil })
	if out := l.ask("new", "and on"); out.GetText() != "You said: and on" || states()[ready].GetLoadedSessions() != 1 {
		t.Errorf("then the runtimes are %v", states())
	}
}
