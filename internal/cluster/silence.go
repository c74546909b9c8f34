package cluster

import (
	"context"
	"sync"
	"time"
)

// silence returns after which time without a renewal a node ends the lease of another one. By then the server should
// have dropped the key; a server whose wall clock was set back drops it later by as much. The other node's lease has
// ended for it long before: it counts from a renewal that was sent before this node saw it.
func (t timing) silence() time.Duration { return t.ttl + t.ttl/2 }

// sightings are the latest renewals of the members that the watch has reported. They are safe for concurrent use.
type sightings struct {
	mu   sync.Mutex
	last map[string]sighting // by member
}

// sighting is a revision of a member's key, and when this node first saw it, by its uptime.
type sighting struct {
	revision uint64
	at       time.Duration
}

// note records a renewal. A watch that begins again repeats what it has reported.
func (s *sightings) note(id string, revision uint64, at time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		s.last = map[string]sighting{}
	}
	if s.last[id].revision < revision {
		s.last[id] = sighting{revision, at}
	}
}

func (s *sightings) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.last, id)
}

// before returns the revisions of the keys that were last seen before a time.
func (s *sightings) before(t time.Duration) map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]uint64{}
	for id, g := range s.last {
		if g.at < t {
			out[id] = g.revision
		}
	}
	return out
}

// endSilent ends the leases of members that have been silent for too long, until ctx ends.
func (n *Node) endSilent(ctx context.Context) {
	tick := time.NewTicker(n.timing.every())
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		n.endSilentNow(ctx)
	}
}

func (n *Node) endSilentNow(ctx context.Context) {
	for id, revision := range n.seen.before(n.cfg.now() - n.timing.silence()) {
		n.endLease(ctx, id, revision)
	}
}

// endLease fences a member whose key has had no renewal since a revision. The server refuses this if there was one of
// which the watch does not know yet.
func (n *Node) endLease(ctx context.Context, id string, revision uint64) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	switch _, err := n.nodes.Update(ctx, id, encode(member{Fenced: true, By: n.cfg.Name}), revision); {
	case err == nil:
		n.log.Warn("this server has ended a lease that NATS did not drop in time: is a clock wrong?",
			"member", id, "silent_for", n.timing.silence())
	case !isConflict(err) && ctx.Err() == nil:
		n.log.Warn("ending the lease of a silent server failed", "member", id, "error", err)
	}
}
