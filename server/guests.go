package server

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

// guestCheck checks a call by the rules for guests once the bridge finds that it uses a session of another tenant. The
// caller's own rights do not apply there, because the request takes effect in a CLI process of the other tenant.
type guestCheck struct {
	policy *policy.Store
	call   *call
	tenant string // the caller's

	mu sync.Mutex
	// owners are the other tenants whose sessions the call uses, with the result of the check.
	owners map[string]verdict
	// early is the error that a guest would get for a frame that came after the first one and before the call used a
	// session of another tenant.
	early error
}

// checkGuest returns a context through which the bridge calls the check.
func (g *gate) checkGuest(ctx context.Context, c *call, who caller.Caller) context.Context {
	c.guest = &guestCheck{policy: g.policy, call: c, tenant: who.Tenant}
	return caller.WithGuestCheck(ctx, func(owner string) error { return c.guest.enter(ctx, owner) })
}

// verdict is a policy's result for the first request of a call on a tenant's session.
type verdict struct {
	by  *policy.Policy
	err error
}

// enter checks the call's requests so far, and registers the check of later ones. A call on several sessions of a
// tenant is checked once for each policy.
func (v *guestCheck) enter(ctx context.Context, owner string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := v.policy.Current()
	if before, has := v.owners[owner]; has && before.by == now {
		return before.err
	}
	err := v.early
	if err == nil {
		err = v.first(ctx, now, owner)
	}
	if v.owners == nil {
		v.owners = map[string]verdict{}
	}
	v.owners[owner] = verdict{now, err}
	return err
}

// first checks the call's first request.
func (v *guestCheck) first(ctx context.Context, p *policy.Policy, owner string) error {
	m := v.call.message()
	if m == nil {
		return fault.New(fault.Forbidden, "the request's type is unknown, so its access cannot be checked")
	}
	return p.CheckGuest(ctx, v.tenant, owner, m.ProtoReflect())
}

// frame checks a frame of a stream after the first.
func (v *guestCheck) frame(ctx context.Context, m proto.Message) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	p := v.policy.Current()
	for owner := range v.owners {
		if err := p.CheckGuest(ctx, v.tenant, owner, m.ProtoReflect()); err != nil {
			return err
		}
	}
	if len(v.owners) == 0 && v.early == nil {
		v.early = policy.CheckUnplaced(ctx, m.ProtoReflect())
	}
	return nil
}
