package app

import (
	"context"
	"errors"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/cluster"
)

const (
	// balanceEvery is the interval at which a replica compares the numbers of sessions.
	balanceEvery = 5 * time.Second
	// movesPerRound bounds the sessions that a replica gives away at a time: each has to be loaded elsewhere.
	movesPerRound = 8
)

// balance gives sessions to replicas that have fewer, until ctx ends: a few at a time, and only quiet ones, without
// participants and subscribers.
func (m *mover) balance(ctx context.Context) {
	tick := time.NewTicker(balanceEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		m.balanceOnce(ctx)
	}
}

// balanceOnce gives away up to movesPerRound sessions.
func (m *mover) balanceOnce(ctx context.Context) {
	members := m.node.Members()
	own := ""
	for _, member := range members {
		if member.Here {
			own = member.ID
		}
	}
	to, n := cluster.Surplus(members, own)
	n = min(n, movesPerRound)
	if n <= 0 {
		return
	}
	for _, key := range m.directory.Owned() {
		if n == 0 || ctx.Err() != nil {
			return
		}
		if len(m.bridge.Credentials(key)) > 0 || !m.node.Fits(to, key) {
			continue
		}
		switch err := m.move(ctx, key, to.ID, true); {
		case err == nil:
			n--
		case !errors.Is(err, errInUse):
			m.log.Warn("a session did not move", "session_id", key, "error", err)
			return
		}
	}
}
