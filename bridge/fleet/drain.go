package fleet

import (
	"context"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// quietTicks is how many times in a row a runtime is found without work before it ends: a caller that has just got the
// runtime needs a moment to call it.
const quietTicks = 2

// Drain sets whether the runtime is draining: it gets no further session. The drain ends with the process.
func (rt *Runtime) Drain(draining bool) error {
	if err := rt.checkReplaceable(); err != nil {
		return err
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	if rt.lost != nil || rt.ending() {
		return rt.errEnding()
	}
	rt.draining = draining
	rt.fleet.table.Drain(rt.profile, draining)
	rt.fleet.log.Info("runtime drain changed", "runtime_id", rt.id, "draining", draining)
	return nil
}

// Recycle ends the runtime when its sessions have left it, or after grace, and returns how many sessions were still in
// use. Sessions leave when they are idle. The work continues when ctx ends.
func (rt *Runtime) Recycle(ctx context.Context, grace time.Duration) (interrupted int, err error) {
	f := rt.fleet
	if err := f.cfg.Shutdown.Accepting(); err != nil {
		return 0, err
	}
	if err := rt.checkReplaceable(); err != nil {
		return 0, err
	}
	if err := rt.leave(); err != nil {
		return 0, err
	}
	f.log.Info("runtime is being recycled", "runtime_id", rt.id, "grace", grace, "sessions", len(rt.loaded()))
	done := make(chan int, 1)
	f.cfg.Shutdown.Go(func(ctx context.Context) {
		n := f.evacuate(ctx, rt, grace, rt.quiet())
		select {
		case <-rt.Ended():
			done <- n
		case <-ctx.Done():
		}
	})
	select {
	case interrupted = <-done:
		return interrupted, nil
	case <-ctx.Done():
		return 0, session.Classify(ctx.Err(), "")
	}
}

// checkReplaceable returns FEATURE_DISABLED unless the server starts and ends the process.
func (rt *Runtime) checkReplaceable() error {
	if rt.fleet.cfg.Tenants.Dialed {
		return fault.New(fault.FeatureDisabled, "the server did not start the CLI process of runtime %q and cannot "+
			"replace it", rt.id).WithField("runtime_id")
	}
	return nil
}

// leave has the supervisor release the runtime, so that its profile gets another one.
func (rt *Runtime) leave() error {
	before := rt.fleet.runtimes.find(func(other *Runtime) bool {
		return other != rt && other.profile.Hash() == rt.profile.Hash() && other.predecessor()
	})
	if before != nil { // each call could otherwise add a process, above the limits of runtimes
		return fault.New(fault.LimitExceeded, "runtime %q, which has the same profile and index, has not ended yet",
			before.id).WithField("runtime_id").With("limit", "recycled_runtimes")
	}
	if !rt.fleet.supervisor.Release(rt.Process()) {
		return rt.errEnding() // it has ended, or was released before
	}
	rt.mu.Lock()
	defer rt.mu.Unlock()
	rt.leaving, rt.recycling = true, true // from now on the supervisor has a successor for sessions that may not enter
	rt.undrain()
	return nil
}

// stop ends the process in order; when ctx ends, by force. Calls that it has not got yet wait for the successor, if they
// are about a session, or fail with RUNTIME_LOST.
func (rt *Runtime) stop(ctx context.Context) {
	rt.stopping.Store(true)
	_ = rt.Process().Stop(ctx) // never fails
}

func (rt *Runtime) errEnding() error {
	return fault.New(fault.RuntimeEnding, "runtime %q has ended or is being replaced", rt.id).WithField("runtime_id").
		With("runtime_id", rt.id)
}

// ending reports whether the runtime is being replaced. The caller holds mu.
func (rt *Runtime) ending() bool { return rt.leaving || rt.fenced.Load() }

// replaced reports whether the runtime is being replaced, and whether a call of Recycle does it.
func (rt *Runtime) replaced() (leaving, recycling bool) {
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	return rt.leaving, rt.recycling
}

// predecessor reports whether the runtime is being replaced and has not ended yet.
func (rt *Runtime) predecessor() bool {
	rt.mu.RLock()
	defer rt.mu.RUnlock()
	return rt.lost == nil && rt.leaving
}

// undrain ends the drain of a runtime that ends: its successor accepts sessions. The caller holds mu.
func (rt *Runtime) undrain() {
	if rt.draining {
		rt.draining = false
		rt.fleet.table.Drain(rt.profile, false)
	}
}

// quiet returns a function that reports whether the runtime had neither sessions nor calls in its last calls.
func (rt *Runtime) quiet() func() bool {
	ticks := 0
	return func() bool {
		ticks++
		if len(rt.loaded()) > 0 || rt.Process().Conn().Stats().InFlight > 0 {
			ticks = 0
		}
		return ticks >= quietTicks
	}
}
