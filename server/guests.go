package server

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

// visit checks what a call says by the rules for guests, as soon as the bridge finds that it is
// about a session of another tenant. A caller's own rights are no measure there: what it asks
// happens in a CLI process of the other tenant's.
type visit struct {
	policy *policy.Store
	call   *call
	tenant string // the caller's

	mu sync.Mutex
	// owners are the other tenants whose sessions the call has come to, and what became of that.
	owners map[string]verdict
	// early is why a frame that came after the first, and before the call had come to a session
	// of another tenant, would be refused to a guest.
	early error
}

// visiting returns a context with which the bridge asks the call's visit.
func (g *gate) visiting(ctx context.Context, c *call, who caller.Caller) context.Context {
	c.visit = &visit{policy: g.policy, call: c, tenant: who.Tenant}
	return caller.WithGuestCheck(ctx, func(owner string) error { return c.visit.enter(ctx, owner) })
}

// verdict is what a policy says of the first request of a call to a tenant's session.
type verdict struct {
	by  *policy.Policy
	err error
}

// enter checks what the call has said so far, and has what it says later checked when it comes. A
// call that comes to many sessions of a tenant is checked once, as long as the policy is the same.
func (v *visit) enter(ctx context.Context, owner string) error {
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
func (v *visit) first(ctx context.Context, p *policy.Policy, owner string) error {
	m := v.call.message()
	if m == nil {
		return fault.New(fault.Forbidden, "the request is not known, and cannot be judged")
	}
	return p.CheckGuest(ctx, v.tenant, owner, m.ProtoReflect())
}

// frame checks a frame of a stream after the first.
func (v *visit) frame(ctx context.Context, m proto.Message) error {
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
