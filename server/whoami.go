package server

import (
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server/identity"
	"github.com/copilot-grpc/copilot-grpc/server/login"
)

// The API's names of proofs, roles and classes.
var (
	proofs = map[identity.Source]bridgev1.CallerProof{
		identity.Socket:      bridgev1.CallerProof_CALLER_PROOF_SOCKET,
		identity.ServerToken: bridgev1.CallerProof_CALLER_PROOF_SERVER_TOKEN,
		identity.StaticToken: bridgev1.CallerProof_CALLER_PROOF_STATIC_TOKEN,
		identity.JWT:         bridgev1.CallerProof_CALLER_PROOF_JWT,
		identity.Certificate: bridgev1.CallerProof_CALLER_PROOF_CERTIFICATE,
	}
	roles = map[caller.Role]bridgev1.Role{
		caller.Observer: bridgev1.Role_ROLE_OBSERVER, caller.Participant: bridgev1.Role_ROLE_PARTICIPANT,
		caller.Owner: bridgev1.Role_ROLE_OWNER, caller.Admin: bridgev1.Role_ROLE_ADMIN,
	}
	classes = map[caller.Class]bridgev1.CallClass{
		caller.Read: bridgev1.CallClass_CALL_CLASS_READ, caller.Drive: bridgev1.CallClass_CALL_CLASS_DRIVE,
		caller.Own: bridgev1.CallClass_CALL_CLASS_OWN, caller.Host: bridgev1.CallClass_CALL_CLASS_HOST,
		caller.Operate: bridgev1.CallClass_CALL_CLASS_OPERATE,
	}
)

// describe returns the caller for the API; nil for a call that another replica has admitted.
func (i *introduction) describe() *bridgev1.CallerInfo {
	if i == nil {
		return nil
	}
	info := &bridgev1.CallerInfo{
		Tenant: login.TenantName(i.who.Tenant), Name: i.who.Name, Proof: proofs[i.id.Source], Issuer: i.id.Issuer,
		WebLogin: i.proof.Login != nil, Role: roles[i.who.Role], Confined: i.who.Confined,
	}
	for class := caller.Read; class <= caller.Operate; class++ {
		if i.who.May(class) {
			info.CallClasses = append(info.CallClasses, classes[class])
		}
	}
	if !i.id.Expires.IsZero() {
		info.ExpireTime = timestamppb.New(i.id.Expires)
	}
	return info
}
