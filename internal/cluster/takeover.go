package cluster

import (
	"context"
	"errors"
	"sync"
	"time"
)

// claimsAtOnce is how many sessions of dead nodes a node opens at a time. Each starts or loads in a CLI process, beside
// the work of the sessions that the node has.
const claimsAtOnce = 4

// TakeOver claims the sessions of nodes that have died, until ctx ends: those for which this node is the winner among
// the living ones. claim acquires a session and opens it. After an error TakeOver tries again later, while the session
// has no living owner. Claims of different sessions overlap.
func (n *Node) TakeOver(ctx context.Context, claim func(ctx context.Context, session string) error) {
	again := time.NewTicker(n.timing.ttl)
	defer again.Stop()
	for {
		n.claimAll(ctx, claim)
		select {
		case <-n.view.changed:
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// claimAll claims the sessions that are this node's to take now, and waits for the claims.
func (n *Node) claimAll(ctx context.Context, claim func(context.Context, string) error) {
	own := n.held.member()
	if own == "" {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, claimsAtOnce)
	for _, session := range n.view.orphans(own, n.held.session) {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		wg.Go(func() {
			defer func() { <-slots }()
			err := claim(ctx, session)
			if err != nil && ctx.Err() == nil && !errors.Is(err, ErrOwned) {
				n.log.Error("taking over a session failed", "session_id", session, "error", err)
			}
		})
	}
}
