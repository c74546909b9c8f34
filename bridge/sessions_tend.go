package bridge

import (
	"context"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// DefaultIdleUnload is the default of Config.IdleUnload.
const DefaultIdleUnload = 30 * time.Minute

// The sessions and runtimes are looked after every so often: as often as the shortest
// bound asks for, within these limits.
const (
	minTend      = 20 * time.Millisecond
	maxTend      = 5 * time.Second
	tendsInBound = 8
)

// unloadTimeout bounds taking a session out of its runtime.
const unloadTimeout = 30 * time.Second

// tendEvery is how often sessions and runtimes are looked after.
func (c *Config) tendEvery() time.Duration {
	shortest := min(c.Turns.Stall, c.IdleUnload, c.Turns.Rest, c.Placement.Idle)
	return min(max(shortest/tendsInBound, minTend), maxTend)
}

// tend looks after sessions and runtimes until the bridge closes. Nothing in it waits
// for the CLI.
func (b *Bridge) tend(ctx context.Context) {
	ticker := time.NewTicker(b.cfg.tendEvery())
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var resting []resting
		for _, s := range sessionsOf(b.all()) {
			s.Watchdog().Check()
			resting = rests(resting, s, b.tuned.Load().IdleUnload)
		}
		b.unload(b.recycle(resting))
		b.retireIdle()
	}
}

// resting is a session that is to be unloaded if nothing has gone on in it for some time.
type resting struct {
	s    *session.Session
	idle time.Duration
}

// rests adds a session that rests to a list.
func rests(list []resting, s *session.Session, idle time.Duration) []resting {
	if !s.Rests(idle) {
		return list
	}
	return append(list, resting{s, idle})
}

// unload takes sessions out of their runtimes in the background: a tenant's one after the
// other, so that no CLI has much of it at once, and nobody waits for another's CLI.
func (b *Bridge) unload(list []resting) {
	lanes := map[string][]resting{}
	for _, r := range list {
		lanes[r.s.Tenant()] = append(lanes[r.s.Tenant()], r)
	}
	for tenant, lane := range lanes {
		if _, busy := b.unloading.LoadOrStore(tenant, nil); busy {
			continue // what rests now does so the next time too
		}
		b.Go(func(ctx context.Context) {
			defer b.unloading.Delete(tenant)
			for _, r := range lane {
				b.unloadOne(ctx, r)
			}
		})
	}
}

func (b *Bridge) unloadOne(ctx context.Context, r resting) {
	ctx, cancel := context.WithTimeout(ctx, unloadTimeout)
	defer cancel()
	done, err := r.s.Unload(ctx, r.idle)
	switch {
	case err != nil && ctx.Err() == nil:
		b.log.Warn("idle session not unloaded", "session_id", r.s.ID(), "error", err)
	case done:
		b.log.Debug("idle session unloaded", "session_id", r.s.ID())
		b.updated(r.s, bridgev1.SessionChange_SESSION_CHANGE_UPDATED)
	}
}
