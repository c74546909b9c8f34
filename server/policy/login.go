package policy

import (
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/server/identity"
)

// BelieveLogin returns the identity of a login. It returns an error if the policy no longer accepts the proof of the
// login: a static token that was removed, or an issuer.
func (p *Policy) BelieveLogin(l *identity.Login) (*identity.Identity, error) {
	switch id := &l.Identity; id.Source {
	case identity.Socket:
		return l.Limit(*id), nil // the owner of the host, in every policy
	case identity.StaticToken:
		if p.tokens != nil {
			if now, ok := p.tokens.Has(l.Digest); ok && now.Token == id.Token {
				return l.Limit(*now), nil
			}
		}
	case identity.JWT:
		if p.accepts(id) {
			return l.Limit(*id), nil
		}
	}
	return nil, fault.New(fault.Unauthenticated, "the login is no longer valid: log in again")
}

// Logins reports whether browsers can log in by a token.
func (p *Policy) Logins() (token bool) { return p.tokens != nil || len(p.file.Identity.OIDC) > 0 }
