package server

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/server/identity"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

// admission is a call in progress that a policy has admitted.
type admission struct {
	*introduction
	end context.CancelCauseFunc
}

// admissions are all admitted calls. A call ends if a new policy would not admit it with all its rights.
type admissions struct {
	confining func(tenant string) error
	// trusted returns why the certificate of a proof is no longer trusted; nil without certificates.
	trusted func(identity.Proof) error

	mu    sync.Mutex
	calls map[*admission]struct{}
}

// under returns a context for a call that ends with its rights. The policy before admitted the call; a policy that
// took effect since is checked at once. ended returns the error of the call, whose own error is err.
func (s *admissions) under(
	ctx context.Context, store *policy.Store, before *policy.Policy, a *admission,
) (_ context.Context, ended func(err error) error) {
	ctx, a.end = context.WithCancelCause(ctx)
	s.mu.Lock()
	if s.calls == nil {
		s.calls = map[*admission]struct{}{}
	}
	s.calls[a] = struct{}{}
	s.mu.Unlock()
	if now := store.Current(); now != before {
		a.check(now, s)
	}
	return ctx, func(err error) error {
		s.mu.Lock()
		delete(s.calls, a)
		s.mu.Unlock()
		if withdrawn, ok := context.Cause(ctx).(*withdrawal); ok && err != nil {
			err = withdrawn.error
		}
		a.end(nil)
		return err
	}
}

// check ends the calls that a policy would not admit.
func (s *admissions) check(p *policy.Policy) {
	s.mu.Lock()
	calls := slices.Collect(maps.Keys(s.calls))
	s.mu.Unlock()
	for _, a := range calls {
		a.check(p, s)
	}
}

// withdrawal is the cause for the end of a call that lost its rights.
type withdrawal struct{ error }

// Unwrap returns the error for the caller.
func (w *withdrawal) Unwrap() error { return w.error }

// Is makes it match caller.ErrWithdrawn.
func (w *withdrawal) Is(target error) bool { return target == caller.ErrWithdrawn }

// check ends the call unless the policy gives it all its initial rights with its initial confinement, and its
// certificate is still trusted.
func (a *admission) check(p *policy.Policy, of *admissions) {
	who, err := a.holds(p, of.trusted)
	switch {
	case err != nil:
	case who.Role < a.who.Role || a.who.Confined && !who.Confined:
		err = fault.New(fault.Forbidden, "%q has fewer rights than at the start of the call: start a new call",
			a.id.Name())
	case a.who.Class == caller.Host && a.who.Tenant != caller.HostTenant:
		err = of.confining(a.who.Tenant)
	}
	if err != nil {
		a.end(&withdrawal{err})
	}
}
