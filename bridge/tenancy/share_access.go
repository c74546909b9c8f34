package tenancy

import (
	"maps"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// shareClasses are the classes of calls that a session may be shared for.
var shareClasses = map[bridgev1.ShareAccess]caller.Class{
	bridgev1.ShareAccess_SHARE_ACCESS_OBSERVE:     caller.Read,
	bridgev1.ShareAccess_SHARE_ACCESS_PARTICIPATE: caller.Drive,
}

// ShareClass returns the class of calls that an access permits; ok is false for unknown ones.
func ShareClass(access bridgev1.ShareAccess) (class caller.Class, ok bool) {
	class, ok = shareClasses[access]
	return class, ok
}

// ShareAccess returns the API's value for a class that a session is shared for.
func ShareAccess(class caller.Class) bridgev1.ShareAccess {
	for access, c := range shareClasses {
		if c == class {
			return access
		}
	}
	return bridgev1.ShareAccess_SHARE_ACCESS_UNSPECIFIED
}

// shareStates are the API's values for the progress of a share.
var shareStates = map[ShareState]bridgev1.ShareState{
	Offered:  bridgev1.ShareState_SHARE_STATE_OFFERED,
	Accepted: bridgev1.ShareState_SHARE_STATE_ACCEPTED,
	Declined: bridgev1.ShareState_SHARE_STATE_DECLINED,
}

// List returns the shares of the owner's session id in the form of the API, by tenant.
func (s *Shares) List(owner, id string) (out []*bridgev1.SessionShare) {
	grants := s.Grants()
	for _, tenant := range slices.Sorted(maps.Keys(grants)) {
		g := grants[tenant]
		out = append(out, &bridgev1.SessionShare{
			Tenant: PublicTenant(tenant), Access: ShareAccess(g.Class), State: shareStates[g.State], SessionId: ShareName(owner, id),
		})
	}
	return out
}
