package fleet

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
)

// A CLI process takes a bounded number of calls at once (rpcconn.DefaultMaxInFlight), and those of
// a session are made in its owner's process. The callers of tenants that the session is shared
// with have a share of that, so that the owner's callers always find room.

const (
	// MaxGuestCalls bounds the calls that all other tenants together have in a process.
	MaxGuestCalls = 64
	// MaxGuestTenantCalls bounds those of one of them.
	MaxGuestTenantCalls = 32
)

// guestCalls counts the calls that other tenants have in a process.
type guestCalls struct{ gauge quota.Gauge }

// take counts a call; release, if it is not nil, is to be called when the process is done with it.
// Answers are not counted: each is asked for, and the process waits for it.
func (g *guestCalls) take(ctx context.Context, owner, method string) (release func(), err error) {
	c := caller.From(ctx)
	if c.Tenant == owner || c.Class == caller.Unclassed || callback.Answers(method) {
		return nil, nil
	}
	return g.gauge.Take(c.Tenant, quota.Limit{
		Name: "calls in a shared session", Tenant: MaxGuestTenantCalls, Overall: MaxGuestCalls,
	})
}
