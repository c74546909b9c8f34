package bridge

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/share"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// place is the bridge as one session sees it: its runtimes are those of the session's
// profile.
type place struct {
	*Bridge
	key string

	shares share.Set // with whom the session is shared; it has a lock of its own

	mu      sync.Mutex
	profile runtime.Profile
	base    runtime.Profile // the tenant's own when profile was made
	inBox   bool            // it has been loaded in a sandbox
}

// placeOf returns a session's place.
func placeOf(s *session.Session) *place { return s.Host().(*place) }

// get is the session's profile, as it was made.
func (pl *place) get() runtime.Profile {
	pl.mu.Lock()
	defer pl.mu.Unlock()
	return pl.profile
}

// current is the session's profile as the policy has it now.
func (pl *place) current() (runtime.Profile, error) {
	pl.mu.Lock()
	p, base := pl.profile, pl.base
	pl.mu.Unlock()
	return pl.confined(p, base)
}

// set gives the session another profile; undo gives back the one before.
func (pl *place) set(p runtime.Profile) (undo func()) {
	own := pl.profileOf(p.Tenant)
	pl.mu.Lock()
	defer pl.mu.Unlock()
	profile, base := pl.profile, pl.base
	pl.profile, pl.base = p, own
	return func() {
		pl.mu.Lock()
		defer pl.mu.Unlock()
		pl.profile, pl.base = profile, base
	}
}

// Runtime implements session.Host: a runtime with room for the session, whose confinement is
// what the policy says.
func (pl *place) Runtime(ctx context.Context) (session.Runtime, error) {
	var refusal error = errConfining()
	for range placements {
		bind, err := pl.placed(ctx)
		if errors.Is(err, errJustEnded) {
			refusal = err
			continue
		}
		if err != nil {
			return nil, err
		}
		if bind.confinedAsNow() {
			pl.boxed(len(bind.profile.Sandbox) > 0)
			return bind, nil
		}
		pl.table.Remove(pl.key, bind.profile)
	}
	return nil, refusal
}

// placed gives the session a place, and returns the runtime that it is in.
func (pl *place) placed(ctx context.Context) (*binding, error) {
	profile, err := pl.current()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(pl.checkBox(profile), pl.checkProvider(profile.Tenant)); err != nil {
		return nil, err
	}
	if !pl.mayStart(ctx) {
		return pl.placedAmong(profile)
	}
	p, err := pl.table.Place(pl.key, profile)
	if err != nil {
		return nil, err
	}
	bind, err := pl.up(ctx, p)
	if err != nil {
		pl.table.Remove(pl.key, p)
		return nil, err
	}
	return bind, nil
}

// Changed implements session.Host. A session whose use is over has no place.
func (pl *place) Changed(s *session.Session, what bridgev1.SessionChange) {
	if what == bridgev1.SessionChange_SESSION_CHANGE_DISCONNECTED || what == bridgev1.SessionChange_SESSION_CHANGE_DELETED {
		pl.table.Forget(pl.key)
	}
	pl.Bridge.Changed(s, what)
}

// runtimeOf returns the first runtime of a profile, for calls that are about no session
// that is loaded. For a caller who may not start one it has to be running.
func (b *Bridge) runtimeOf(ctx context.Context, p runtime.Profile) (*binding, error) {
	var refusal error = errConfining()
	for range placements {
		bind, err := firstOf(ctx, b, p)
		if errors.Is(err, errJustEnded) {
			refusal = err
			continue
		}
		if err != nil || bind.confinedAsNow() {
			return bind, err
		}
	}
	return nil, refusal
}

// firstOf is runtimeOf under the policy of one moment.
func firstOf(ctx context.Context, b *Bridge, p runtime.Profile) (*binding, error) {
	p, err := b.confined(p, b.profileOf(p.Tenant))
	if err != nil {
		return nil, err
	}
	if !mayStart(ctx, p.Tenant) {
		if bind := runningOf(b, p); bind != nil {
			return bind, nil
		}
		return nil, errNotRunning()
	}
	p, err = b.table.Use(p)
	if err != nil {
		return nil, err
	}
	return b.up(ctx, p)
}

// errJustEnded says that a runtime ended between its start and its first use. A policy that changes while a runtime
// starts has this effect: the runtime has no sessions, so that it is replaced at once.
var errJustEnded = fault.New(fault.RuntimeLost, "the runtime ended right after its start: try again")

// up returns the runtime of exactly this profile, starting it if need be. It returns errJustEnded when that runtime has
// ended already.
func (b *Bridge) up(ctx context.Context, p runtime.Profile) (*binding, error) {
	defer b.table.Hold(p)()
	rt, err := b.runtimes.Get(ctx, p)
	if err != nil {
		return nil, session.Classify(err, "")
	}
	if bind, ok := b.fleet.Find(func(bind *binding) bool { return bind.runtime() == rt }); ok {
		return bind, nil
	}
	return nil, errJustEnded
}

// retireIdle ends the runtimes that nobody needs.
func (b *Bridge) retireIdle() {
	for _, p := range b.table.Unused(b.hasLoaded) {
		b.Go(func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, retireTimeout)
			defer cancel()
			b.log.Info("idle runtime ends", "profile", p.Hash())
			if err := b.runtimes.Retire(ctx, p); err != nil {
				b.log.Warn("idle runtime not ended", "profile", p.Hash(), "error", err)
			}
		})
	}
}

// hasLoaded reports whether the runtime of that profile has the session.
func (b *Bridge) hasLoaded(key string, p runtime.Profile) bool {
	bindings := b.fleet.All()
	hash := p.Hash()
	return slices.ContainsFunc(bindings, func(bind *binding) bool {
		return bind.profile.Hash() == hash && bind.has(key)
	})
}

// homes returns a profile for each home of the caller's tenant that is in use, its default
// first.
func (b *Bridge) homes(ctx context.Context) []runtime.Profile {
	own := b.own(ctx)
	out := []runtime.Profile{own}
	seen := map[string]bool{own.StateDir(): true}
	for _, p := range b.table.Profiles() {
		if p.Tenant == own.Tenant && !seen[p.StateDir()] && p.SessionFS == nil {
			seen[p.StateDir()] = true
			out = append(out, p)
		}
	}
	return out
}
