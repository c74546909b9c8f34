package fleet

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet/placement"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
)

// attempts is how often a runtime is chosen again when the policy changes meanwhile.
const attempts = 3

// Place returns a runtime with room for the session, whose confinement is what the policy says. It starts one if need
// be and the caller may.
func (f *Fleet) Place(ctx context.Context, e *sessions.Entry) (*Runtime, error) {
	rt, err := f.choose(func() (*Runtime, error) { return f.placed(ctx, e) }, func(rt *Runtime) {
		f.table.Remove(e.Key(), rt.profile)
	})
	if err == nil && len(rt.profile.Sandbox) > 0 {
		e.Sandboxed.Store(true)
	}
	return rt, err
}

// First returns the first runtime of a profile, for calls that are about no loaded session. It starts one if need be
// and the caller may.
func (f *Fleet) First(ctx context.Context, p runtime.Profile) (*Runtime, error) {
	return f.choose(func() (*Runtime, error) { return f.first(ctx, p) }, func(*Runtime) {})
}

// choose calls try until the runtime that it returns runs under the policy in force. It gives the others to reject.
func (f *Fleet) choose(try func() (*Runtime, error), reject func(*Runtime)) (*Runtime, error) {
	var refusal error = errConfining()
	for range attempts {
		rt, err := try()
		switch {
		case errors.Is(err, errJustEnded):
			refusal = err
		case err != nil:
			return nil, err
		case f.confined(rt):
			return rt, nil
		default:
			reject(rt)
		}
	}
	return nil, refusal
}

// Uses returns the runtimes of f and the sessions in them, by tenant.
func (f *Fleet) Uses() quota.Uses { return f.table.Uses() }

// Forget ends a session's assignment to any runtime.
func (f *Fleet) Forget(key string) { f.table.Forget(key) }

// placed gives the session a place, and returns the runtime that it is in.
func (f *Fleet) placed(ctx context.Context, e *sessions.Entry) (*Runtime, error) {
	profile, err := f.ProfileNow(e)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(checkSandbox(e, profile), f.checkProvider(e.Session)); err != nil {
		return nil, err
	}
	key := e.Key()
	if !mayStartFor(ctx, e) {
		return f.placedAmong(key, profile)
	}
	p, err := f.table.Place(key, profile)
	if err != nil {
		return nil, err
	}
	rt, err := f.up(ctx, p)
	if err != nil {
		f.table.Remove(key, p)
		return nil, err
	}
	return rt, nil
}

// first is First under the policy of one moment.
func (f *Fleet) first(ctx context.Context, p runtime.Profile) (*Runtime, error) {
	p, err := f.cfg.Tenants.Confined(p, f.cfg.Tenants.ProfileOf(p.Tenant))
	if err != nil {
		return nil, err
	}
	if !mayStart(ctx, p.Tenant) {
		key := placement.Key(p)
		for _, rt := range f.running(p.Tenant) {
			if placement.Key(rt.profile) == key && !rt.fenced.Load() {
				return rt, nil
			}
		}
		return nil, errNotRunning()
	}
	p, err = f.table.Use(p)
	if err != nil {
		return nil, err
	}
	return f.up(ctx, p)
}

// errJustEnded says that a runtime ended between its start and its first use. A policy that changes while a runtime
// starts has this effect: the runtime has no sessions, so that it is replaced at once.
var errJustEnded = fault.New(fault.RuntimeLost, "the runtime ended right after its start: try again")

// up returns the runtime of exactly this profile, starting it if need be. It returns errJustEnded when that runtime has
// ended already.
func (f *Fleet) up(ctx context.Context, p runtime.Profile) (*Runtime, error) {
	defer f.table.Hold(p)()
	process, err := f.supervisor.Get(ctx, p)
	if err != nil {
		return nil, session.Classify(err, "")
	}
	if rt := f.runtimes.find(func(rt *Runtime) bool { return rt.Process() == process }); rt != nil {
		return rt, nil
	}
	return nil, errJustEnded
}

// Homes returns a profile for each home of the caller's tenant that is in use, its default
// first.
func (f *Fleet) Homes(ctx context.Context) []runtime.Profile {
	own := f.cfg.Tenants.CallerProfile(ctx)
	out := []runtime.Profile{own}
	seen := map[string]bool{own.StateDir(): true}
	for _, p := range f.table.Profiles() {
		if p.Tenant == own.Tenant && !seen[p.StateDir()] && p.SessionFS == nil {
			seen[p.StateDir()] = true
			out = append(out, p)
		}
	}
	return out
}

// mayStart reports whether the caller may start processes of a tenant. That takes the role participant: a process costs
// its tenant one of the few that it may have, and callers who may only read use processes that run. Callers of another
// tenant may not start one, except by mayStartFor.
func mayStart(ctx context.Context, tenant string) bool {
	c := caller.From(ctx)
	return c.May(caller.Drive) && (c.Tenant == tenant || c.May(caller.Operate))
}

// mayStartFor reports whether the caller may start the process that the session is to be in: one of
// its tenant's, or of a tenant that it is shared with to take part.
func mayStartFor(ctx context.Context, e *sessions.Entry) bool {
	c := caller.From(ctx)
	return mayStart(ctx, e.Session.Tenant()) || c.May(caller.Drive) && e.Shares.Class(c.Tenant) >= caller.Drive
}

// placedAmong gives the session a place in a runtime that runs.
func (f *Fleet) placedAmong(key string, profile runtime.Profile) (*Runtime, error) {
	alike := map[string]bool{}
	runtimes := f.running(profile.Tenant)
	for _, rt := range runtimes {
		if rt.accepts() {
			alike[rt.profile.Hash()] = true
		}
	}
	if p, ok := f.table.PlaceAmong(key, profile, alike); ok {
		for _, rt := range runtimes {
			if rt.profile.Hash() == p.Hash() && rt.accepts() {
				return rt, nil
			}
		}
	}
	return nil, errNotRunning()
}

func errNotRunning() error {
	return fault.New(fault.RuntimeNotRunning, "no CLI process of this profile is running, and starting one requires the "+
		"role %q: any call about the profile by a caller with that role starts one", caller.Participant)
}

// Call calls a method that is about no loaded session in the first runtime of a profile. It reads the result into into.
func (f *Fleet) Call(ctx context.Context, p runtime.Profile, method string, params jsonobj.Object, into any) error {
	rt, err := f.First(ctx, p)
	if err != nil {
		return err
	}
	result, err := rt.Call(ctx, method, params.JSON())
	if err != nil {
		return session.Classify(err, method)
	}
	if err := json.Unmarshal(result, into); err != nil {
		return fault.Wrap(err, fault.CLIProtocolError, "reading the result of %s", method)
	}
	return nil
}
