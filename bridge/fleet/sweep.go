package fleet

import (
	"context"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Run sweeps until ctx ends. Nothing in it waits for the CLI.
func (f *Fleet) Run(ctx context.Context) {
	ticker := time.NewTicker(f.cfg.SweepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			f.Sweep()
		}
	}
}

// Sweep ends turns and waits that have made no progress within their time limits, begins to unload idle sessions,
// replaces or ends runtimes that are worn or unused, and starts spare ones. It returns the number of sessions that it found idle. It must not
// be called concurrently.
func (f *Fleet) Sweep() (idle int) {
	var list []idleSession
	for _, e := range f.cfg.Store.Usable() {
		e.Session.Watchdog().Check()
		list = appendIdle(list, e.Session, f.tuning.Load().IdleUnload)
	}
	list = append(list, f.recycle()...)
	f.startUnload(list)
	f.startSpares()
	f.retireIdle()
	return len(list)
}

// idleSession is a session that is to be unloaded if it has been idle for a time.
type idleSession struct {
	s    *session.Session
	idle time.Duration
}

// appendIdle adds a session to a list if it has been idle for a time.
func appendIdle(list []idleSession, s *session.Session, idle time.Duration) []idleSession {
	if !s.Loader().Idle(idle) {
		return list
	}
	return append(list, idleSession{s, idle})
}

// unloadTimeout bounds unloading a session.
const unloadTimeout = 30 * time.Second

// startUnload begins to unload idle sessions in the background: the sessions of a tenant one after the other, so that no CLI
// has to unload many at once, and no tenant waits for another's CLI. It ignores sessions of a tenant for which an unload
// runs: the next sweep finds them again.
func (f *Fleet) startUnload(list []idleSession) {
	lanes := map[string][]idleSession{}
	for _, i := range list {
		lanes[i.s.Tenant()] = append(lanes[i.s.Tenant()], i)
	}
	for tenant, lane := range lanes {
		if _, busy := f.unloading.LoadOrStore(tenant, nil); busy {
			continue
		}
		f.cfg.Shutdown.Go(func(ctx context.Context) {
			defer f.unloading.Delete(tenant)
			for _, i := range lane {
				f.unload(ctx, i)
			}
		})
	}
}

// unload unloads a session if it is still idle.
func (f *Fleet) unload(ctx context.Context, i idleSession) {
	ctx, cancel := context.WithTimeout(ctx, unloadTimeout)
	defer cancel()
	done, err := i.s.Loader().Unload(ctx, i.idle)
	switch {
	case err != nil && ctx.Err() == nil:
		f.log.Warn("unloading an idle session failed", "session_id", i.s.ID(), "error", err)
	case done:
		f.log.Debug("idle session unloaded", "session_id", i.s.ID())
		if e := f.cfg.Store.EntryOf(i.s); e != nil {
			f.cfg.Changed(e, bridgev1.SessionChange_SESSION_CHANGE_UPDATED)
		}
	}
}
