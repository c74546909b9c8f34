package placement

import (
	"fmt"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
)

// fixture is a table with a clock that is turned by hand.
type fixture struct {
	*Table
	t     *testing.T
	clock time.Time
}

func newFixture(t *testing.T, cfg Config) *fixture {
	t.Helper()
	r := &fixture{t: t, clock: time.Unix(1000, 0)}
	r.Table = New(cfg, runtime.Profile{}, func() time.Time { return r.clock })
	return r
}

func (r *fixture) place(session string, p runtime.Profile) int {
	r.t.Helper()
	got, err := r.Place(session, p)
	if err != nil {
		r.t.Fatalf("place %q: %v", session, err)
	}
	if Key(got) != Key(p) {
		r.t.Fatalf("session %q of profile %+v is in %+v", session, p, got)
	}
	return got.Shard
}

// unused ends what is idle; only the sessions named are loaded.
func (r *fixture) unused(loaded ...string) (shards []int) {
	r.t.Helper()
	for _, p := range r.Unused(func(s string, _ runtime.Profile) bool {
		for _, name := range loaded {
			if name == s {
				return true
			}
		}
		return false
	}) {
		shards = append(shards, p.Shard)
	}
	return shards
}

func TestSessionsFillRuntimesInOrder(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{MaxSessions: 2})
	var p runtime.Profile
	for i, want := range []int{0, 0, 1, 1, 2} {
		if got := r.place(fmt.Sprintf("s%d", i), p); got != want {
			t.Errorf("session %d is in shard %d, want %d", i, got, want)
		}
	}
	if got := r.place("s2", p); got != 1 {
		t.Errorf("a session that has a place is moved to shard %d", got)
	}
	r.Remove("s0", runtime.Profile{})
	if got := r.place("s5", p); got != 0 {
		t.Errorf("the room in shard 0 is not used: shard %d", got)
	}
}

func TestARemovalElsewhereDoesNotCount(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{MaxSessions: 1})
	r.place("a", runtime.Profile{})
	r.Remove("a", runtime.Profile{Shard: 1})
	if got := r.place("b", runtime.Profile{}); got != 1 {
		t.Errorf("shard %d: the place of a session was given away by a runtime it is not in", got)
	}
}

func TestProfilesAreApart(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{MaxSessions: 2})
	r.place("a", runtime.Profile{})
	other := runtime.Profile{LogLevel: "debug"}
	r.place("b", other)
	r.place("a", other) // resumed with another profile
	r.place("c", runtime.Profile{})
	if got := r.place("d", runtime.Profile{}); got != 0 {
		t.Errorf("shard %d: a session that moved still counts in its old runtime", got)
	}
	if got := len(r.Profiles()); got != 2 {
		t.Errorf("%d profiles, want 2", got)
	}
}

func TestRuntimesAreBounded(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{MaxSessions: 1, MaxRuntimes: 2})
	r.place("a", runtime.Profile{})
	r.place("b", runtime.Profile{})
	if _, err := r.Place("c", runtime.Profile{}); fault.ReasonOf(err) != fault.LimitExceeded {
		t.Errorf("error %v, want LIMIT_EXCEEDED", err)
	}
	if _, err := r.Use(runtime.Profile{LogLevel: "debug"}); fault.ReasonOf(err) != fault.LimitExceeded {
		t.Errorf("error %v, want LIMIT_EXCEEDED", err)
	}
	r.Forget("b")
	r.clock = r.clock.Add(DefaultIdle)
	r.unused("a")
	r.place("c", runtime.Profile{LogLevel: "debug"})
}

func TestIdleRuntimesEnd(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{MaxSessions: 1, Idle: time.Minute})
	for i := range 3 {
		r.place(fmt.Sprintf("s%d", i), runtime.Profile{})
	}
	r.Forget("s1")
	if got := r.unused("s0", "s2"); len(got) != 0 {
		t.Errorf("shards %v end before the idle time is over", got)
	}
	r.clock = r.clock.Add(time.Minute)
	if got := r.unused("s0", "s2"); len(got) != 1 || got[0] != 1 {
		t.Errorf("shards %v end, want 1", got)
	}
	// A place that was never taken, and the runtime that always stays.
	if got := r.unused(); len(got) != 1 || got[0] != 2 {
		t.Errorf("shards %v end, want 2", got)
	}
	if got := r.place("s9", runtime.Profile{}); got != 0 {
		t.Errorf("shard %d, want the one that stays", got)
	}
	// The numbers of ended runtimes are used again.
	if got := r.place("s10", runtime.Profile{}); got != 1 {
		t.Errorf("shard %d, want 1", got)
	}
}

func TestARuntimeThatStartsIsNotIdle(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{Idle: time.Minute})
	other := runtime.Profile{LogLevel: "debug"}
	r.place("a", other)
	release := r.Hold(other)
	r.clock = r.clock.Add(time.Hour)
	if got := r.unused(); len(got) != 0 {
		t.Errorf("%v ended while somebody waited for it", got)
	}
	release()
	if got := r.unused(); len(got) != 0 {
		t.Errorf("%v ended as soon as it had started", got)
	}
	r.clock = r.clock.Add(time.Minute)
	if got := r.unused(); len(got) != 1 {
		t.Errorf("%v ended, want one", got)
	}
}

func TestUseKeepsARuntime(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{Idle: time.Minute})
	other := runtime.Profile{LogLevel: "debug"}
	for range 3 {
		if _, err := r.Use(other); err != nil {
			t.Fatal(err)
		}
		r.clock = r.clock.Add(50 * time.Second)
		if got := r.unused(); len(got) != 0 {
			t.Fatalf("%v ended while in use", got)
		}
	}
	r.clock = r.clock.Add(10 * time.Second)
	if got := r.unused(); len(got) != 1 {
		t.Errorf("%v ended, want one", got)
	}
}

// Places can be taken and released while the caller finds out what is loaded: that may need a lock under which
// places are taken. A runtime that was used meanwhile stays.
func TestPlacesAreGivenBackWhileOneAsks(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{MaxSessions: 1, Idle: time.Minute})
	r.place("s0", runtime.Profile{})
	r.place("s1", runtime.Profile{})
	p, err := r.Place("s2", runtime.Profile{})
	if err != nil {
		t.Fatal(err)
	}
	r.clock = r.clock.Add(time.Minute)
	for _, idle := range r.Unused(func(session string, _ runtime.Profile) bool {
		over := make(chan struct{})
		go func() {
			defer close(over)
			r.Remove("s2", p)
		}()
		select {
		case <-over:
		case <-time.After(10 * time.Second):
			t.Error("no place can be given back")
		}
		return session != "s1"
	}) {
		if idle.Shard != 1 {
			t.Errorf("shard %d ends, want only that of s1, which was never taken", idle.Shard)
		}
	}
}

// Other servers count for the bounds, but each may have one runtime and one session of a tenant.
func TestBoundsOverServers(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{MaxSessions: 1})
	r.Bound(func(tenant string) (own, all Bounds) {
		return map[string]Bounds{
			"a": {Sessions: 4, SessionsElsewhere: 2}, "b": {Sessions: 4, SessionsElsewhere: 9},
			"c": {Runtimes: 3, RuntimesElsewhere: 3},
		}[tenant], Bounds{}
	})
	for tenant, want := range map[string]int{"a": 2, "b": 1, "c": 1} {
		placed := 0
		for n := range 5 {
			if _, err := r.Place(fmt.Sprint(tenant, n), runtime.Profile{Tenant: tenant}); err == nil {
				placed++
			} else if fault.ReasonOf(err) != fault.LimitExceeded {
				t.Errorf("%s: %v", tenant, err)
			}
		}
		if placed != want {
			t.Errorf("tenant %s has %d sessions here, want %d", tenant, placed, want)
		}
		if use := r.Uses()[tenant]; use.LoadedSessions != want || use.Runtimes != want {
			t.Errorf("tenant %s uses %+v", tenant, use)
		}
	}
}
