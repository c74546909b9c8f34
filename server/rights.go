package server

import (
	"context"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/server/identity"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

// admission is a call under way that a policy let in.
type admission struct {
	proof identity.Proof
	id    *identity.Identity
	who   caller.Caller
	end   context.CancelCauseFunc
}

// admissions are all of them: a call ends when another policy would not have let it in, or
// not with all its rights.
type admissions struct {
	confining func(tenant string) error
	// trusted tells why a proof's certificate is not trusted any more; nil where there are none.
	trusted func(identity.Proof) error

	mu    sync.Mutex
	calls map[*admission]struct{}
}

// under returns a context for a call that ends with its rights. It was let in by the policy
// before; one that has come into force since is asked at once. ended returns the error of
// the call, whose own is err.
func (s *admissions) under(ctx context.Context, store *policy.Store, before *policy.Policy, a *admission) (_ context.Context, ended func(err error) error) {
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

// check ends the calls that a policy would not let in.
func (s *admissions) check(p *policy.Policy) {
	s.mu.Lock()
	calls := make([]*admission, 0, len(s.calls))
	for a := range s.calls {
		calls = append(calls, a)
	}
	s.mu.Unlock()
	for _, a := range calls {
		a.check(p, s)
	}
}

// withdrawal is the cause with which a call ends whose rights do.
type withdrawal struct{ error }

// Unwrap returns what the caller is told.
func (w *withdrawal) Unwrap() error { return w.error }

// Is reports whether it is what others know it as.
func (w *withdrawal) Is(target error) bool { return target == caller.ErrWithdrawn }

// check ends the call unless the policy gives it all the rights that it began with, in the
// confinement that it began with, and its certificate is trusted still.
func (a *admission) check(p *policy.Policy, of *admissions) {
	err := a.holds(p)
	if err == nil && of.trusted != nil {
		err = of.trusted(a.proof)
	}
	if err == nil && a.who.Class == caller.Host && a.who.Tenant != caller.HostTenant {
		err = of.confining(a.who.Tenant)
	}
	if err != nil {
		a.end(&withdrawal{err})
	}
}

// holds returns what a policy takes away of the call's rights.
func (a *admission) holds(p *policy.Policy) error {
	id, err := p.Believe(a.proof, a.id)
	if err != nil {
		return err
	}
	tenant := a.who.Tenant
	if tenant == caller.HostTenant {
		tenant = caller.HostName
	}
	who, err := p.Resolve(id, tenant)
	if err != nil {
		return err
	}
	if who.Role < a.who.Role || a.who.Confined && !who.Confined {
		return fault.New(fault.Forbidden, "%q has fewer rights than when the call began: begin another", id.Name())
	}
	return nil
}
