package cluster

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/cluster/natstest"
)

// The clock of a NATS server was set back, so that it does not drop the lease of a node that has died. Another node
// ends that lease by its own clock, and has the sessions. It leaves a node alone that renews, also if its watch is
// late.
func TestSilentNodeIsFenced(t *testing.T) {
	t.Parallel()
	server := natstest.Start(t)
	var passed atomic.Int64 // for the nodes, not for the server
	clock := func(c *Config) {
		c.TTL = time.Minute
		c.now = func() time.Duration { return uptime() + time.Duration(passed.Load()) }
	}
	dead, cut := join(t, server, "dead", clock)
	alive, _ := join(t, server, "alive", clock)
	next, _ := join(t, server, "next", clock)
	for session, n := range map[string]*Node{"s": dead, "kept": alive} {
		if _, err := n.acquire(t.Context(), session); err != nil {
			t.Fatal(err)
		}
	}
	over := dead.held.member()
	cut()
	for range 20 {
		passed.Add(int64(time.Minute / 10))
		alive.renewNow()
		next.renewNow()
		for recent := 0; recent < 2 && t.Context().Err() == nil; {
			time.Sleep(time.Millisecond)
			recent = 3 - len(next.seen.before(next.cfg.now()-time.Minute/10))
		}
	}
	next.endSilentNow(t.Context())
	if e, err := next.nodes.Get(t.Context(), over); err != nil || !decode[member](e.Value()).Fenced {
		t.Fatalf("the dead node's lease is not over: %v", err)
	}
	acquireSoon(t, next, "s")
	next.endLease(t.Context(), alive.held.member(), 1) // a revision of long ago
	if _, err := next.acquire(t.Context(), "kept"); !errors.Is(err, ErrOwned) || alive.held.member() == "" {
		t.Errorf("a node that renews has lost its lease: %v", err)
	}
}
