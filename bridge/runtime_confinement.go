package bridge

import (
	"context"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/registry"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// DefaultConfinementGrace is the default of Config.ConfinementGrace.
const DefaultConfinementGrace = 10 * time.Second

const (
	// evacuateEvery is how often the sessions of a fenced runtime are asked to leave.
	evacuateEvery = 100 * time.Millisecond
	// fencedStop bounds the orderly end of a fenced runtime, before the end is forced.
	fencedStop = 5 * time.Second
	// confinementRetry is when callers are told to try again.
	confinementRetry = time.Second
	// placements is how often a session is placed again, when the policy changes meanwhile.
	placements = 3
)

// stale reports whether a runtime was started with another confinement than the policy's.
func (bind *binding) stale() bool {
	return bind.b.tenants.Stale(bind.profile)
}

// confinedAsNow reports whether the runtime has the confinement of the policy, and is not fenced.
func (bind *binding) confinedAsNow() bool { return !bind.fenced.Load() && !bind.stale() }

// Confining returns CONFINEMENT_CHANGING while a process of the tenant runs with another
// confinement than the policy in force has for it. It asks the policy itself: there is no moment
// between the change of that and the refusal.
func (b *Bridge) Confining(tenant string) error {
	if tenant == caller.HostTenant {
		return nil
	}
	for _, bind := range b.running(tenant) {
		if bind.stale() {
			return errConfining()
		}
	}
	return nil
}

func errConfining() *fault.Error {
	return fault.New(fault.ConfinementChanging, "the policy has changed what confines the tenant, and a process from before "+
		"that is still running: try again when it has ended").WithRetry(confinementRetry)
}

// running lists the runtimes of a tenant that have not ended.
func (b *Bridge) running(tenant string) []*binding {
	bindings := b.fleet.All()
	return slices.DeleteFunc(bindings, func(bind *binding) bool { return bind.profile.Tenant != tenant || bind.Err() != nil })
}

// Reconfine is told that another policy is in force. It replaces the processes whose confinement
// differs from what that says, in the background: they take nothing new, sessions leave them as
// soon as nothing goes on in them, and after ConfinementGrace they are ended.
func (b *Bridge) Reconfine() {
	bindings := b.fleet.All()
	for _, bind := range bindings {
		bind.fenceStale()
	}
}

// fenceStale fences the runtime if its confinement is not the policy's, and begins its end.
func (bind *binding) fenceStale() {
	b := bind.b
	if bind.Err() != nil || !bind.stale() || !bind.fenced.CompareAndSwap(false, true) {
		return
	}
	b.log.Info("runtime is being replaced, its confinement has changed",
		"runtime_id", bind.id, "tenant", bind.profile.Tenant, "sessions", len(bind.loaded()))
	b.table.Discard(bind.profile)
	if releaser, ok := b.runtimes.(Releaser); ok {
		releaser.Release(bind.runtime())
	}
	b.Go(func(ctx context.Context) { bind.evacuate(ctx) })
}

// evacuate has the sessions of a fenced runtime leave it, for as long as ConfinementGrace lasts,
// and ends it. What still goes on in it then is lost, and its sessions go on in the successor.
func (bind *binding) evacuate(ctx context.Context) {
	grace, cancel := context.WithTimeout(ctx, bind.b.tuned.Load().ConfinementGrace)
	defer cancel()
	tick := time.NewTicker(evacuateEvery)
	defer tick.Stop()
	for {
		for _, s := range bind.loaded() {
			if s.Rests(0) { // else it would keep the others waiting
				bind.b.unloadOne(grace, resting{s, 0})
			}
		}
		if len(bind.loaded()) == 0 || grace.Err() != nil {
			break
		}
		select {
		case <-tick.C:
		case <-grace.Done():
		case <-bind.Ended():
			return
		}
	}
	if ctx.Err() != nil {
		return // the bridge closes, and its supervisor ends the runtimes
	}
	stop, cancelStop := context.WithTimeout(context.WithoutCancel(ctx), fencedStop)
	defer cancelStop()
	_ = bind.runtime().Stop(stop) // never fails
}

// passesFence lists the methods that a fenced runtime still takes from callers: what ends
// something there.
var passesFence = map[string]bool{
	"session.abort": true, "session.destroy": true, "session.delete": true, "session.detach": true,
}

// checkFence refuses what a caller would begin in a fenced runtime. Reading, answering and ending
// go on, and so does what the bridge itself has to do there.
func (bind *binding) checkFence(ctx context.Context, method string) error {
	if !bind.fenced.Load() || caller.From(ctx).Class <= caller.Read || passesFence[method] || callback.Answers(method) {
		return nil
	}
	return errConfining()
}

// checkSandbox refuses to load a session outside a sandbox that has been loaded in one: callers of its
// tenant were allowed to give it commands and files of the host then, which only the sandbox
// confined.
func checkSandbox(e *registry.Entry, p runtime.Profile) error {
	if !e.Sandboxed() || len(p.Sandbox) > 0 {
		return nil
	}
	return fault.New(fault.Forbidden, "the session was opened in a sandbox, which the policy of its tenant has not any more: "+
		"disconnect it, or give the tenant its sandbox back").WithField("session_id")
}

// checkProvider refuses to load a session with a provider of the server's own that the policy does
// not let its tenant name any more.
func (b *Bridge) checkProvider(s *session.Session) error {
	if ref := s.ProviderRef(); ref != "" && !b.tenants.MayName(s.Tenant(), ref) {
		return fault.New(fault.Forbidden, "the provider %q is not the tenant's any more: resume the session with another", ref).
			WithField("provider_ref")
	}
	return nil
}
