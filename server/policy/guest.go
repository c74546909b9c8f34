package policy

import (
	"context"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// CheckGuest refuses a request about a session that the tenant owner shares with the tenant guest; both are the
// bridge's names. The request takes effect in a CLI process of the owner, so each field must be permitted to both
// tenants:
//
//   - Fields that name the host are refused, even if both tenants have a sandbox: the owner's
//     sandbox contains its other sessions, and a share permits at most calls of the class drive.
//   - A URL must be on the guest's list, and on the owner's unless the owner has a sandbox. The
//     host's own tenant has no list and may name all. A sandbox of the guest does not replace
//     its list, since it does not confine the owner's process.
//   - Members that the contract does not declare are refused.
func (p *Policy) CheckGuest(ctx context.Context, guest, owner string, m protoreflect.Message) error {
	var lists []*Tenant
	for _, name := range []string{guest, owner} {
		if name == caller.HostTenant {
			continue
		}
		t, ok := p.Tenant(name)
		if !ok {
			return fault.New(fault.Forbidden, "the tenant %q no longer exists", name)
		}
		if name == guest || len(t.Sandbox) == 0 {
			lists = append(lists, &t)
		}
	}
	return (&fieldCheck{ctx: ctx, lists: lists}).message(m, "")
}

// CheckUnplaced refuses a frame that CheckGuest could refuse for some owner. It is for calls that have not named a
// session yet, and may name a shared one later.
func CheckUnplaced(ctx context.Context, m protoreflect.Message) error {
	return (&fieldCheck{ctx: ctx, lists: []*Tenant{{}}}).message(m, "")
}
