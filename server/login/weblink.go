package login

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server/identity"
)

// Bounds of CreateWebLinkRequest.ttl.
const (
	defaultLinkTime = 10 * time.Minute
	minLinkTime     = time.Second
	maxLinkTime     = 24 * time.Hour
)

// maxAncestors bounds the logins from which a login descends.
const maxAncestors = 16

// roles are the caller's roles by the API's roles.
var roles = map[bridgev1.Role]caller.Role{
	bridgev1.Role_ROLE_UNSPECIFIED: caller.Nobody, bridgev1.Role_ROLE_OBSERVER: caller.Observer,
	bridgev1.Role_ROLE_PARTICIPANT: caller.Participant, bridgev1.Role_ROLE_OWNER: caller.Owner,
	bridgev1.Role_ROLE_ADMIN: caller.Admin,
}

// proven is an identity with its proof.
type proven struct {
	id    *identity.Identity
	proof identity.Proof
}

type provenKey struct{}

// WithCaller returns the context of a call of CreateWebLink with the identity of its caller.
func WithCaller(ctx context.Context, id *identity.Identity, proof identity.Proof) context.Context {
	return context.WithValue(ctx, provenKey{}, &proven{id, proof})
}

// CreateWebLink carries out the rpc.
func (s *Store) CreateWebLink(ctx context.Context, req *bridgev1.CreateWebLinkRequest) (
	*bridgev1.CreateWebLinkResponse, error,
) {
	who := caller.From(ctx)
	p, ok := ctx.Value(provenKey{}).(*proven)
	switch {
	case !ok || s.URL() == "":
		return nil, fault.New(fault.FeatureDisabled, "the server has no listener for browsers (web)")
	case p.id.Source == identity.Certificate:
		return nil, fault.New(fault.FeatureDisabled, "a client certificate cannot be handed on by a link")
	}
	ttl := defaultLinkTime
	if req.GetTtl() != nil {
		ttl = req.GetTtl().AsDuration()
	}
	if ttl < minLinkTime || ttl > maxLinkTime {
		return nil, fault.New(fault.InvalidField, "%v is not between %v and %v", ttl, minLinkTime, maxLinkTime).
			WithField("ttl")
	}
	role, ok := roles[req.GetRole()]
	switch {
	case !ok:
		return nil, fault.New(fault.InvalidField, "%d is not a role", req.GetRole()).WithField("role")
	case role == caller.Nobody:
		role = who.Role
	case role > who.Role:
		return nil, fault.New(fault.Forbidden, "the role %v is higher than the caller's, %v", role, who.Role).
			WithField("role")
	}
	// If the caller has a login, its identity expires with the login. A stolen cookie cannot extend itself by links.
	l := identity.Login{Identity: *p.id, Tenant: TenantName(who.Tenant), Role: role}
	switch {
	case p.proof.Login != nil:
		l.Digest = p.proof.Login.Digest
		l.Ancestors = append([]string{p.proof.Login.ID}, p.proof.Login.Ancestors...)
		if len(l.Ancestors) > maxAncestors {
			return nil, fault.New(fault.LimitExceeded, "the login descends from %d others by links: log in again",
				maxAncestors).With("limit", "web_link_generations")
		}
	case l.Identity.Source == identity.StaticToken || l.Identity.Source == identity.ServerToken:
		l.Digest = digest(p.proof.Bearer)
	}
	url, expires := s.Link(l, ttl)
	return &bridgev1.CreateWebLinkResponse{Url: url, ExpireTime: timestamppb.New(expires)}, nil
}
