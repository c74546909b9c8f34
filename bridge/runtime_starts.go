package bridge

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/placement"
	"github.com/copilot-grpc/copilot-grpc/bridge/registry"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
)

// Starting a CLI process takes the role participant: a process costs its tenant one of the few
// that it may have. Callers who may only read are answered by processes that run.

// mayStart reports whether the caller may start processes of a tenant. Another tenant's callers
// may not; where they take part in a session, mayStartFor decides.
func mayStart(ctx context.Context, tenant string) bool {
	c := caller.From(ctx)
	return c.May(caller.Drive) && (c.Tenant == tenant || c.May(caller.Operate))
}

// mayStartFor reports whether the caller may start the process that the session is to be in: one of
// its tenant's, or of a tenant that it is shared with to take part.
func mayStartFor(ctx context.Context, e *registry.Entry) bool {
	c := caller.From(ctx)
	return mayStart(ctx, e.Session.Tenant()) || c.May(caller.Drive) && e.Shares.Class(c.Tenant) >= caller.Drive
}

// placedAmong gives the session a place in a runtime that runs.
func (b *Bridge) placedAmong(key string, profile runtime.Profile) (*binding, error) {
	alike := map[string]bool{}
	bindings := b.running(profile.Tenant)
	for _, bind := range bindings {
		alike[bind.profile.Hash()] = !bind.fenced.Load()
	}
	if p, ok := b.table.PlaceAmong(key, profile, alike); ok {
		for _, bind := range bindings {
			if bind.profile.Hash() == p.Hash() && !bind.fenced.Load() {
				return bind, nil
			}
		}
	}
	return nil, errNotRunning()
}

// runningOf returns a runtime of a profile that runs and is not being replaced, nil if there is
// none.
func runningOf(b *Bridge, p runtime.Profile) *binding {
	key := placement.Key(p)
	for _, bind := range b.running(p.Tenant) {
		if placement.Key(bind.profile) == key && !bind.fenced.Load() {
			return bind
		}
	}
	return nil
}

func errNotRunning() error {
	return fault.New(fault.RuntimeNotRunning, "no CLI process of this profile is running, and starting one takes the role %q: "+
		"a caller with that role starts one by any call about the profile", caller.Participant)
}
