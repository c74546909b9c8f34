package policy

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/server/identity"
)

// Policy is the content of a policy file. It is immutable.
type Policy struct {
	file           *file
	authenticators []identity.Authenticator
	tokens         *identity.Tokens // nil without static tokens
	flows          []*identity.CodeFlow
	// files are the paths of the files it was read from.
	files []string
	// secrets are the secret files among them.
	secrets []string
}

// Files returns the paths of the files that the policy was read from.
func (p *Policy) Files() []string { return slices.Clone(p.files) }

// Load reads a policy file and the tokens file that it names. now is the clock.
func Load(path string, now func() time.Time) (*Policy, error) {
	text, err := read(path)
	if err != nil {
		return nil, err
	}
	f, err := parse(text)
	if err != nil {
		return nil, fmt.Errorf("policy %q: %w", path, err)
	}
	p := &Policy{file: f, files: []string{path}}
	if f.Identity.Certificates {
		c := identity.Certificates{TrustDomains: f.Identity.TrustDomains, Now: now}
		for _, one := range f.Identity.Proxies {
			c.Proxies = append(c.Proxies, identity.Proxy(one))
		}
		p.authenticators = append(p.authenticators, c)
	}
	if tokens := f.Identity.Tokens; tokens != "" {
		if !filepath.IsAbs(tokens) {
			tokens = filepath.Join(filepath.Dir(path), tokens)
		}
		if err := p.addTokens(tokens, now); err != nil {
			return nil, err
		}
	}
	for _, o := range f.Identity.OIDC {
		algorithms := o.Algorithms
		if len(algorithms) == 0 {
			algorithms = identity.DefaultAlgorithms
		}
		issuer := identity.NewOIDC(identity.Issuer{
			URL: o.Issuer, Audiences: o.Audiences, Algorithms: algorithms, Skew: cmp.Or(o.Skew, identity.DefaultSkew),
			KeysMaxAge: o.KeysMaxAge, Now: now,
		})
		p.authenticators = append(p.authenticators, issuer)
		if err := p.addLogin(issuer, o.Login, path); err != nil {
			return nil, fmt.Errorf("policy %q: %w", path, err)
		}
	}
	if len(p.authenticators) == 0 {
		return nil, fmt.Errorf("policy %q: identity: at least one of certificates, oidc and tokens is required", path)
	}
	return p, nil
}

func (p *Policy) addTokens(path string, now func() time.Time) error {
	text, err := read(path)
	if err != nil {
		return err
	}
	tokens, err := identity.ParseTokens(text, now)
	if err != nil {
		return fmt.Errorf("tokens %q: %w", path, err)
	}
	names := tokens.Names()
	for name, t := range p.file.Tenants {
		for i, m := range t.Members {
			if m.Token != "" && !names[m.Token] {
				return fmt.Errorf("tenants.%s.members[%d].token: %q is not in %q", name, i, m.Token, path)
			}
		}
	}
	p.authenticators, p.tokens = append(p.authenticators, tokens), tokens
	p.files = append(p.files, path)
	return nil
}

// read reads a file up to maxFile bytes.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%q has %d bytes, more than %d", path, info.Size(), maxFile)
	}
	return os.ReadFile(path)
}

// Path returns the path of the policy file.
func (p *Policy) Path() string { return p.files[0] }

// Authenticate returns the identity of a proof.
func (p *Policy) Authenticate(ctx context.Context, proof identity.Proof) (*identity.Identity, error) {
	for _, a := range p.authenticators {
		// A bearer token takes precedence over the connection's certificate, which may be a proxy's.
		if _, ok := a.(identity.Certificates); ok && proof.Bearer != "" {
			continue
		}
		if id, err := a.Authenticate(ctx, proof); id != nil || err != nil {
			return id, err
		}
	}
	if proof.Bearer != "" {
		return nil, fault.New(fault.Unauthenticated, "the token is not valid")
	}
	return nil, fault.New(fault.Unauthenticated, "the call needs a client certificate, or the metadata %q",
		"authorization: Bearer TOKEN")
}

// Believe returns the identity of a proof that an earlier policy has accepted. It does not verify the signature of a
// JSON web token again, which could require its issuer.
func (p *Policy) Believe(proof identity.Proof, before *identity.Identity) (*identity.Identity, error) {
	if proof.Login != nil {
		return p.IdentifyLogin(proof.Login)
	}
	if before.Source != identity.JWT {
		id, err := p.Authenticate(context.Background(), proof) // needs no request to an issuer
		if err == nil && id.Source == identity.Certificate && id.Key() != before.Key() {
			return nil, fault.New(fault.Unauthenticated, "by the new policy the certificate is another caller's")
		}
		return id, err
	}
	if !p.accepts(before, func(o issuer) []string { return o.Audiences }) {
		return nil, fault.New(fault.Unauthenticated, "tokens of this issuer are no longer accepted")
	}
	return before, nil
}

// accepts reports whether the identity of a JSON web token is of an issuer of the policy and for one of its audiences.
func (p *Policy) accepts(id *identity.Identity, audiences func(issuer) []string) bool {
	return slices.ContainsFunc(p.file.Identity.OIDC, func(o issuer) bool {
		return o.Issuer == id.Issuer &&
			slices.ContainsFunc(audiences(o), func(a string) bool { return hasClaim(id.Claims["aud"], a) })
	})
}

// Resolve returns the caller for an identity. wanted selects one of its tenants; it may be empty if there is only
// one.
func (p *Policy) Resolve(id *identity.Identity, wanted string) (caller.Caller, error) {
	roles, matched := map[string]caller.Role{}, map[string]string{}
	for name, t := range p.file.Tenants {
		for i := range t.Members {
			if m := &t.Members[i]; m.matches(id) {
				role, _ := caller.ParseRole(m.Role) // validated
				roles[name] = max(roles[name], role)
				if matched[name] == "" {
					matched[name] = m.nameOf(id)
				}
			}
		}
	}
	switch {
	case len(roles) == 0:
		return caller.Caller{}, fault.New(fault.Forbidden, "%q has no role in any tenant", id.Name())
	case wanted == "" && len(roles) > 1:
		return caller.Caller{}, fault.New(fault.Forbidden, "%q is in the tenants %s: choose one with the metadata %q",
			id.Name(), strings.Join(slices.Sorted(maps.Keys(roles)), ", "), MetadataTenant)
	case wanted == "":
		for name := range roles {
			wanted = name
		}
	}
	role, ok := roles[wanted]
	if !ok {
		return caller.Caller{}, fault.New(fault.Forbidden, "%q has no role in the tenant %q", id.Name(), wanted)
	}
	c := caller.Caller{Tenant: wanted, Name: matched[wanted], Role: role,
		Confined: len(p.file.Tenants[wanted].Sandbox) > 0}
	if wanted == caller.HostName {
		c.Tenant = caller.HostTenant
	}
	return c, nil
}

// MetadataTenant is the metadata with which a caller in several tenants selects one.
const MetadataTenant = "copilot-tenant"

// Tenant returns a tenant's section, by the bridge's name of the tenant.
func (p *Policy) Tenant(name string) (Tenant, bool) {
	if name == caller.HostTenant {
		name = caller.HostName
	}
	t, ok := p.file.Tenants[name]
	if !ok {
		return Tenant{}, false
	}
	return *t, true
}

// Tenants returns the names of the tenants, sorted.
func (p *Policy) Tenants() []string { return slices.Sorted(maps.Keys(p.file.Tenants)) }

// Size returns the number of tenants without the host's own.
func (p *Policy) Size() int {
	n := len(p.file.Tenants)
	if _, ok := p.file.Tenants[caller.HostName]; ok {
		n--
	}
	return n
}

// WarmRuntimes returns, by tenant, how many CLI processes are kept ready; without tenants that have none.
func (p *Policy) WarmRuntimes() map[string]int {
	warm := map[string]int{}
	for name, t := range p.file.Tenants {
		if t.WarmRuntimes > 0 {
			warm[name] = t.WarmRuntimes
		}
	}
	return warm
}

// Providers returns the server's model providers that any tenant may use, sorted.
func (p *Policy) Providers() []string {
	names := map[string]bool{}
	for _, t := range p.file.Tenants {
		for _, name := range t.Providers {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Limits returns the limits of all tenants together.
func (p *Policy) Limits() quota.Limits { return p.file.Limits }

// Issuers returns the issuers of JSON web tokens.
func (p *Policy) Issuers() (issuers []*identity.OIDC) {
	for _, a := range p.authenticators {
		if o, ok := a.(*identity.OIDC); ok {
			issuers = append(issuers, o)
		}
	}
	return issuers
}

// Certificates reports whether client certificates are accepted as proof, and whether they are the only proof.
func (p *Policy) Certificates() (asked, required bool) {
	return p.file.Identity.Certificates, p.file.Identity.Certificates && len(p.authenticators) == 1
}
