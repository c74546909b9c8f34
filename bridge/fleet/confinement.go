package fleet

import (
	"context"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
)

const (
	// evacuateEvery is the interval at which the bridge tries to unload the sessions of a runtime that is to end.
	evacuateEvery = 100 * time.Millisecond
	// fencedStop bounds the orderly end of such a runtime, before the end is forced.
	fencedStop = 5 * time.Second
	// confinementRetry is the suggested time before a retry.
	confinementRetry = time.Second
)

// confined reports whether the runtime has the confinement of the policy in force, and is not fenced.
func (f *Fleet) confined(rt *Runtime) bool {
	return !rt.fenced.Load() && !f.cfg.Tenants.Stale(rt.profile)
}

// Confining returns CONFINEMENT_CHANGING while a process of the tenant runs with another
// confinement than the policy in force has for it. It asks the policy itself: there is no moment
// between the change of that and the refusal.
func (f *Fleet) Confining(tenant string) error {
	if tenant == caller.HostTenant {
		return nil
	}
	for _, rt := range f.running(tenant) {
		if f.cfg.Tenants.Stale(rt.profile) {
			return errConfining()
		}
	}
	return nil
}

func errConfining() *fault.Error {
	return fault.New(fault.ConfinementChanging, "the policy has changed the tenant's confinement, and a process with the "+
		"earlier confinement is still running: try again when it has ended").WithRetry(confinementRetry)
}

// Reconfine must be called when another policy is in force. In the background it replaces the processes whose
// confinement differs from the policy's: they take no new work, sessions leave them as soon as they are idle, and after
// ConfinementGrace they are ended.
func (f *Fleet) Reconfine() {
	for _, rt := range f.runtimes.all() {
		f.fenceStale(rt)
	}
}

// fenceStale fences the runtime if its confinement is not the policy's, and begins its end.
func (f *Fleet) fenceStale(rt *Runtime) {
	if rt.Err() != nil || !f.cfg.Tenants.Stale(rt.profile) || !rt.fenced.CompareAndSwap(false, true) {
		return
	}
	f.log.Info("runtime is being replaced, its confinement has changed",
		"runtime_id", rt.id, "tenant", rt.profile.Tenant, "sessions", len(rt.loaded()))
	f.table.Discard(rt.profile)
	f.supervisor.Release(rt.Process())
	grace := f.tuning.Load().ConfinementGrace
	f.cfg.Shutdown.Go(func(ctx context.Context) {
		f.evacuate(ctx, rt, grace, func() bool { return len(rt.loaded()) == 0 })
	})
}

// evacuate unloads the sessions of a runtime as they become idle, until it is empty or the grace time is over, and ends
// the runtime. Work that still goes on in it then is lost; its sessions continue in the successor. It returns how many
// sessions were still in use.
func (f *Fleet) evacuate(ctx context.Context, rt *Runtime, grace time.Duration, empty func() bool) (interrupted int) {
	graceful, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	tick := time.NewTicker(evacuateEvery)
	defer tick.Stop()
	for {
		for _, s := range rt.loaded() {
			if s.Loader().Idle(0) { // else the other sessions would wait for it
				f.unload(graceful, idleSession{s, 0})
			}
		}
		if empty() || graceful.Err() != nil {
			break
		}
		select {
		case <-tick.C:
		case <-graceful.Done():
		case <-rt.Ended():
			return 0
		}
	}
	if ctx.Err() != nil {
		return 0 // the bridge closes, and its supervisor ends the runtimes
	}
	for _, s := range rt.loaded() {
		if !s.Loader().Idle(0) {
			interrupted++
		}
	}
	stop, cancelStop := context.WithTimeout(context.WithoutCancel(ctx), fencedStop)
	defer cancelStop()
	rt.stop(stop)
	return interrupted
}

// passesFence lists the methods that a fenced runtime still takes from callers: what ends
// something there.
var passesFence = map[string]bool{
	"session.abort": true, "session.destroy": true, "session.delete": true, "session.detach": true,
}

// checkFence refuses what a caller would begin in a fenced runtime. Reading, answering and ending
// go on, and so does what the bridge itself has to do there.
func checkFence(ctx context.Context, rt *Runtime, method string) error {
	if !rt.fenced.Load() || caller.From(ctx).Class <= caller.Read || passesFence[method] || callback.Answers(method) {
		return nil
	}
	return errConfining()
}

// checkSandbox refuses to load a session outside a sandbox that has been loaded in one: callers of its
// tenant were allowed to give it commands and files of the host then, which only the sandbox
// confined.
func checkSandbox(e *sessions.Entry, p runtime.Profile) error {
	if !e.Sandboxed.Load() || len(p.Sandbox) > 0 {
		return nil
	}
	return fault.New(fault.Forbidden, "the session was opened in a sandbox, and the policy no longer has a sandbox for "+
		"its tenant: disconnect the session, or restore the tenant's sandbox").WithField("session_id")
}

// checkProvider refuses to load a session with a provider of the server's own that the policy does
// not let its tenant name any more.
func (f *Fleet) checkProvider(s *session.Session) error {
	if ref := s.Settings().ProviderRef(); ref != "" && !f.cfg.Tenants.MayName(s.Tenant(), ref) {
		return fault.New(fault.Forbidden,
			"the policy no longer allows the provider %q: resume the session with another provider", ref).WithField("provider_ref")
	}
	return nil
}
