package policy

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/server/identity"
)

// IdentifyLogin returns the identity of a login. It returns an error if the policy no longer accepts the proof of the
// login: a static token that was removed, or an issuer.
func (p *Policy) IdentifyLogin(l *identity.Login) (*identity.Identity, error) {
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
		if p.accepts(id, issuer.audiences) {
			return l.Limit(*id), nil
		}
	}
	return nil, fault.New(fault.Unauthenticated, "the login is no longer valid: log in again")
}

// audiences returns the audiences of the tokens by which browsers log in.
func (o issuer) audiences() []string {
	if o.Login == nil {
		return o.Audiences
	}
	return append(slices.Clone(o.Audiences), o.Login.ClientID)
}

// addLogin adds the logins of browsers at an issuer, if the policy has them.
func (p *Policy) addLogin(o *identity.OIDC, c *client, policy string) error {
	if c == nil {
		return nil
	}
	to := identity.Client{ID: c.ClientID, Scopes: c.Scopes, Lifetime: c.Lifetime}
	if file := c.SecretFile; file != "" {
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.Dir(policy), file)
		}
		text, err := read(file)
		if err != nil {
			return fmt.Errorf("client_secret_file: %w", err)
		}
		if to.Secret = strings.TrimSpace(string(text)); to.Secret == "" {
			return errors.New("client_secret_file: the file is empty")
		}
		p.files, p.secrets = append(p.files, file), append(p.secrets, file)
	}
	p.flows = append(p.flows, identity.NewCodeFlow(o, to))
	return nil
}

// Flow returns the logins of browsers at an issuer, of the first one for an empty text; nil if there are none.
func (p *Policy) Flow(issuer string) *identity.CodeFlow {
	for _, f := range p.flows {
		if issuer == "" || f.Issuer() == issuer {
			return f
		}
	}
	return nil
}

// Secrets returns the paths of the policy's files that other users of the machine must not read.
func (p *Policy) Secrets() []string { return slices.Clone(p.secrets) }

// Logins reports whether browsers can log in by a token.
func (p *Policy) Logins() (token bool) { return p.tokens != nil || len(p.file.Identity.OIDC) > 0 }
