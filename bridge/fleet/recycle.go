package fleet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
)

const (
	// moveIdle is how long a session must be idle before it leaves a worn runtime.
	moveIdle = time.Second
	// retireTimeout bounds the orderly end of a runtime that no session is in.
	retireTimeout = 30 * time.Second
	// maxUnanswered is how many cancelled calls a runtime may leave unanswered.
	maxUnanswered = 2048
)

// Wear has the limits above which a runtime is worn and is replaced. Zero sets no limit.
type Wear struct {
	// Age is the time since the start.
	Age time.Duration
	// RSS is the memory in bytes.
	RSS int64
}

// of returns why a runtime of an age is worn, "" if it is not.
func (w Wear) of(age time.Duration, health runtime.Health) string {
	switch {
	case w.Age > 0 && age >= w.Age:
		return fmt.Sprintf("it is %v old", age.Round(time.Second))
	case w.RSS > 0 && health.RSS >= w.RSS:
		return fmt.Sprintf("it has %d bytes of memory", health.RSS)
	case health.Unanswered >= maxUnanswered:
		return fmt.Sprintf("it has not answered %d cancelled calls", health.Unanswered)
	}
	return ""
}

// recycle replaces the worn runtimes: their sessions move to another runtime when they are idle, and a worn runtime
// ends when it has none. It returns the sessions that are to move.
func (f *Fleet) recycle() (moving []idleSession) {
	for _, rt := range f.runtimes.all() {
		if rt.Err() != nil || rt.retiring {
			continue
		}
		leaving, recycling := rt.replaced()
		if recycling {
			continue
		}
		if !leaving {
			f.release(rt)
			continue // a caller that has just got it has until the next sweep to load a session in it
		}
		sessions := rt.loaded()
		for _, s := range sessions {
			moving = appendIdle(moving, s, moveIdle)
		}
		if len(sessions) == 0 {
			f.retire(rt)
		}
	}
	return moving
}

// release has the supervisor release a runtime that is worn.
func (f *Fleet) release(rt *Runtime) {
	process := rt.Process()
	why := f.tuning.Load().Wear.of(time.Since(process.Info().StartedAt), process.Health())
	if why == "" || !f.supervisor.Release(process) {
		return
	}
	rt.mu.Lock()
	rt.leaving = true
	rt.undrain()
	rt.mu.Unlock()
	f.log.Info("runtime is being replaced", "runtime_id", rt.id, "reason", why)
}

// retire ends a runtime that has no sessions.
func (f *Fleet) retire(rt *Runtime) {
	rt.retiring = true
	f.cfg.Shutdown.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, retireTimeout)
		defer cancel()
		rt.stop(ctx)
	})
}

// retireIdle ends the runtimes that have had no session for the idle time.
func (f *Fleet) retireIdle() {
	for _, p := range f.table.Unused(f.hasLoaded) {
		f.cfg.Shutdown.Go(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, retireTimeout)
			defer cancel()
			f.log.Info("ending an idle runtime", "profile", p.Hash())
			if err := f.supervisor.Retire(ctx, p); err != nil {
				f.log.Warn("ending an idle runtime failed", "profile", p.Hash(), "error", err)
			}
		})
	}
}

// hasLoaded reports whether the runtime of exactly that profile has loaded the session.
func (f *Fleet) hasLoaded(key string, p runtime.Profile) bool {
	hash := p.Hash()
	return slices.ContainsFunc(f.runtimes.all(), func(rt *Runtime) bool {
		return rt.profile.Hash() == hash && rt.has(key)
	})
}
