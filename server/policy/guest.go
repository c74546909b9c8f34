package policy

import (
	"context"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// CheckGuest refuses a request about a session that the tenant owner shares with the tenant
// guest, by the bridge's names of tenants. What the request says takes effect in a CLI process of
// the owner's, so that the smaller of both tenants' rights counts, field by field:
//
//   - What names the host is refused, even if both tenants have a sandbox: in the owner's there are
//     the owner's other sessions, and a session is shared for calls of the class drive at most.
//   - A URL has to be on the guest's list, and on the owner's unless the owner has a sandbox. The
//     host's own tenant has no list, and may name all. A sandbox of the guest's does not take the
//     place of its list, since it does not confine the owner's process.
//   - What the contract does not declare is refused.
func (p *Policy) CheckGuest(ctx context.Context, guest, owner string, m protoreflect.Message) error {
	var lists []*Tenant
	for _, name := range []string{guest, owner} {
		if name == caller.HostTenant {
			continue
		}
		t, ok := p.Tenant(name)
		if !ok {
			return fault.New(fault.Forbidden, "there is no tenant %q any more", name)
		}
		if name == guest || len(t.Sandbox) == 0 {
			lists = append(lists, &t)
		}
	}
	return (&fieldCheck{ctx: ctx, lists: lists}).message(m, "")
}

// CheckUnplaced refuses a frame of a call that may turn out to be about a shared session: whatever
// CheckGuest could refuse for some owner.
func CheckUnplaced(ctx context.Context, m protoreflect.Message) error {
	return (&fieldCheck{ctx: ctx, lists: []*Tenant{{}}}).message(m, "")
}
