package bridge

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/placement"
	"github.com/copilot-grpc/copilot-grpc/bridge/registry"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// host is the bridge as one session uses it: its runtimes are those of the session's profile.
type host struct {
	b *Bridge
	e *registry.Entry
}

// Runtime implements session.Host.
func (h host) Runtime(ctx context.Context) (session.Runtime, error) {
	bind, err := h.b.place(ctx, h.e)
	if err != nil {
		return nil, err
	}
	return bind, nil
}

// Go implements session.Host.
func (h host) Go(f func(ctx context.Context)) { h.b.Go(f) }

// Changed implements session.Host. A disconnected or deleted session has no place in a runtime.
func (h host) Changed(_ *session.Session, what bridgev1.SessionChange) {
	if what == bridgev1.SessionChange_SESSION_CHANGE_DISCONNECTED || what == bridgev1.SessionChange_SESSION_CHANGE_DELETED {
		h.b.table.Forget(h.e.Key())
	}
	h.b.changed(h.e, what)
}

// Keep implements session.Host. It does not wait.
func (h host) Keep(*session.Session) {
	if h.b.cfg.Directory != nil {
		h.b.saver.MarkDirty(h.e)
	}
}

// Epoch implements session.Host.
func (h host) Epoch() uint64 {
	epoch, err := h.b.epochs.Next()
	if err != nil {
		h.b.log.Error("epoch not reserved on disk", "error", err)
	}
	return epoch
}

// Logger implements session.Host.
func (h host) Logger() *slog.Logger { return h.b.log }

// profileNow returns the session's profile with what the policy says now.
func (b *Bridge) profileNow(e *registry.Entry) (runtime.Profile, error) {
	return b.tenants.Confined(e.Profile())
}

// setProfile gives the session another profile; undo restores the previous one.
func (b *Bridge) setProfile(e *registry.Entry, p runtime.Profile) (undo func()) {
	return e.SetProfile(p, b.tenants.ProfileOf(p.Tenant))
}

// place returns a runtime with room for the session, whose confinement is what the policy says.
func (b *Bridge) place(ctx context.Context, e *registry.Entry) (*binding, error) {
	var refusal error = errConfining()
	for range placements {
		bind, err := b.placed(ctx, e)
		if errors.Is(err, errJustEnded) {
			refusal = err
			continue
		}
		if err != nil {
			return nil, err
		}
		if bind.confinedAsNow() {
			if len(bind.profile.Sandbox) > 0 {
				e.SetSandboxed()
			}
			return bind, nil
		}
		b.table.Remove(e.Key(), bind.profile)
	}
	return nil, refusal
}

// placed gives the session a place, and returns the runtime that it is in.
func (b *Bridge) placed(ctx context.Context, e *registry.Entry) (*binding, error) {
	profile, err := b.profileNow(e)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(checkSandbox(e, profile), b.checkProvider(e.Session)); err != nil {
		return nil, err
	}
	key := e.Key()
	if !mayStartFor(ctx, e) {
		return b.placedAmong(key, profile)
	}
	p, err := b.table.Place(key, profile)
	if err != nil {
		return nil, err
	}
	bind, err := b.up(ctx, p)
	if err != nil {
		b.table.Remove(key, p)
		return nil, err
	}
	return bind, nil
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
	p, err := b.tenants.Confined(p, b.tenants.ProfileOf(p.Tenant))
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
	own := b.tenants.CallerProfile(ctx)
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

// reprofile gives a session that is resumed the profile that its caller wants; undo gives
// back the one before. A session that is loaded cannot move.
func (b *Bridge) reprofile(ctx context.Context, e *registry.Entry, m *bridgev1.RuntimeProfile, join *session.Joining, at string) (undo func(), err error) {
	s := e.Session
	before, _ := e.Profile()
	p := before
	if m != nil {
		if p, err = b.tenants.ReadProfile(ctx, m, at, s.ID()); err != nil {
			return nil, err
		}
	}
	if s.State() != session.Loaded {
		p.Multi = p.Multi || join.NeedsConnection() && !b.tenants.Dialed
	}
	if moves, err := b.moves(e, p); err != nil {
		return nil, err
	} else if s.State() == session.Loaded && moves {
		return nil, fault.New(fault.SessionBusy, "session %q is loaded in a runtime of another profile", s.ID()).WithField(at)
	}
	putBack := b.setProfile(e, p)
	s.Need(tenancy.RequiredCallbacks(p)...)
	return func() {
		putBack()
		s.Need(tenancy.RequiredCallbacks(before)...)
	}, nil
}

// moves reports whether a profile, in force now, is that of another runtime than the session's.
func (b *Bridge) moves(e *registry.Entry, p runtime.Profile) (bool, error) {
	before, err := b.profileNow(e)
	if err != nil {
		return false, err
	}
	after, err := b.tenants.Confined(p, b.tenants.ProfileOf(p.Tenant))
	return placement.Key(before) != placement.Key(after), err
}
