package fleet

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
)

// A CLI process accepts a bounded number of calls at once (rpcconn.DefaultMaxInFlight), and the calls of a
// session use its owner's process. The callers of other tenants that share the session get only a part of that
// number, so that the owner's callers always have room.

const (
	// MaxGuestCalls bounds the calls that all other tenants together have in a process.
	MaxGuestCalls = 64
	// MaxGuestTenantCalls bounds the calls of one such tenant.
	MaxGuestTenantCalls = 32
)

// guestCalls counts the calls that other tenants have in a process.
type guestCalls struct{ gauge quota.Gauge }

// take counts a call. The caller calls release, if it is not nil, when the process has finished the call.
// Answers do not count, since the process waits for them.
func (g *guestCalls) take(ctx context.Context, owner, method string) (release func(), err error) {
	c := caller.From(ctx)
	if c.Tenant == owner || c.Class == caller.Unclassed || callback.Answers(method) {
		return nil, nil
	}
	return g.gauge.Take(c.Tenant, quota.Limit{
		Name: "calls in a shared session", Tenant: MaxGuestTenantCalls, Overall: MaxGuestCalls, Fixed: true,
	})
}
