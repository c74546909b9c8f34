package placement

import (
	"slices"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
)

func (r *fixture) spares(n int, want ...int) {
	r.t.Helper()
	found, err := r.Spares(runtime.Profile{}, n)
	if err != nil {
		r.t.Fatal(err)
	}
	var shards []int
	for _, p := range found {
		shards = append(shards, p.Shard)
	}
	if !slices.Equal(shards, want) {
		r.t.Errorf("the spare runtimes are %v, want %v", shards, want)
	}
	r.KeepSpares(map[string]int{Key(runtime.Profile{}): n})
}

// A spare runtime is the next one that a session takes, and another follows it.
func TestSpares(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{MaxSessions: 1, MaxRuntimes: 3})
	var p runtime.Profile
	r.spares(1, 0)
	r.spares(1, 0)
	if got := r.place("a", p); got != 0 {
		t.Errorf("the first session is in shard %d", got)
	}
	r.spares(1, 1)
	if got := r.place("b", p); got != 1 {
		t.Errorf("the second session is in shard %d", got)
	}
	r.spares(1, 2)
	r.place("c", p)
	if found, err := r.Spares(p, 1); len(found) != 0 || fault.ReasonOf(err) != fault.LimitExceeded {
		t.Errorf("above the limit of runtimes: %v, %v", found, err)
	}
}

// Unused leaves as many runtimes with room as KeepSpares says.
func TestUnusedKeepsSpares(t *testing.T) {
	t.Parallel()
	r := newFixture(t, Config{MaxSessions: 1, Idle: time.Minute})
	var p runtime.Profile
	for _, session := range []string{"a", "b", "c", "d"} {
		r.place(session, p)
	}
	for _, session := range []string{"b", "c", "d"} {
		r.Forget(session)
	}
	r.spares(2, 1, 2)
	r.clock = r.clock.Add(time.Hour)
	if got := r.unused("a"); !slices.Equal(got, []int{1}) {
		t.Errorf("the shards %v are ended, want one of three with room", got)
	}
	r.spares(0)
	if got := r.unused("a"); !slices.Equal(got, []int{2, 3}) {
		t.Errorf("without spares the shards %v are ended", got)
	}
}
