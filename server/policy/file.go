// Package policy determines the rights of callers: the tenant and role of an identity, and the class of rights that
// each call requires. docs/security.md describes the policy file.
//
// Store.mu orders changes of the policy; readers of the current policy take no lock. Store.Watch is the only
// goroutine.
package policy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/server/identity"
)

// fileVersion is the version of the file format.
const fileVersion = 1

// file is a policy file.
type file struct {
	Version  int                `yaml:"version"`
	Identity identitySection    `yaml:"identity"`
	Tenants  map[string]*Tenant `yaml:"tenants"`
	Limits   quota.Limits       `yaml:"limits"`
}

// identitySection configures authentication.
type identitySection struct {
	Certificates bool     `yaml:"certificates"`
	TrustDomains []string `yaml:"trust_domains"`
	Proxies      []proxy  `yaml:"proxies"`
	OIDC         []issuer `yaml:"oidc"`
	Tokens       string   `yaml:"tokens"`
}

// proxy is a proxy that reports the certificates of its callers.
type proxy struct {
	SPIFFE string `yaml:"spiffe"`
	DNS    string `yaml:"dns"`
}

func (p proxy) check() error {
	switch {
	case (p.SPIFFE == "") == (p.DNS == ""):
		return errors.New("spiffe: a proxy needs exactly one of spiffe and dns")
	case p.SPIFFE != "" && (!spiffePattern.MatchString(p.SPIFFE) || strings.Contains(p.SPIFFE, "*")):
		return fmt.Errorf("spiffe: %q is not a SPIFFE id; wildcards are not allowed", p.SPIFFE)
	}
	return nil
}

// isMember reports whether a member has a proxy's name.
func (p proxy) isMember(m *Member) bool {
	return p.SPIFFE != "" && m.SPIFFE != "" && matchSPIFFE(m.SPIFFE, p.SPIFFE) ||
		p.DNS != "" && strings.EqualFold(p.DNS, m.DNS)
}

// issuer is an issuer of JSON web tokens.
type issuer struct {
	Issuer       string        `yaml:"issuer"`
	Audiences    []string      `yaml:"audiences"`
	Algorithms   []string      `yaml:"algorithms"`
	Skew         time.Duration `yaml:"skew"`
	KeysMaxAge   time.Duration `yaml:"keys_max_age"`
	InsecureHTTP bool          `yaml:"insecure_http"`
	Login        *client       `yaml:"login"`
}

// client is this server as a client of an issuer.
type client struct {
	ClientID   string        `yaml:"client_id"`
	SecretFile string        `yaml:"client_secret_file"`
	Scopes     []string      `yaml:"scopes"`
	Lifetime   time.Duration `yaml:"lifetime"`
}

func (c *client) check() error {
	switch {
	case c.ClientID == "":
		return errors.New("client_id: it is required")
	case c.Lifetime < 0 || c.Lifetime > 0 && c.Lifetime < time.Minute || c.Lifetime > 30*24*time.Hour:
		return fmt.Errorf("lifetime: %v is not between 1m and 720h", c.Lifetime)
	case slices.ContainsFunc(c.Scopes, func(s string) bool { return s == "" || strings.ContainsAny(s, " \"\\") }):
		return errors.New("scopes: a scope is empty, or has a space, a quote or a backslash")
	}
	return nil
}

// Tenant is the file's section of a tenant.
type Tenant struct {
	// Members are the identities with a role in the tenant.
	Members []Member `yaml:"members"`
	// Home is the folder of all data of the tenant's CLI processes; the default is a folder in the data directory.
	Home string `yaml:"home"`
	// Env is the environment of its CLI processes, in addition to what every process needs.
	Env map[string]string `yaml:"env"`
	// User is the user of its CLI processes; the default is the server's.
	User *User `yaml:"user"`
	// Sandbox is the command that starts its CLI processes.
	Sandbox []string `yaml:"sandbox"`
	// Ambient gives its sessions the tools, instructions and discovery of the CLI by default. It requires a sandbox.
	Ambient bool `yaml:"ambient"`
	// URLs are public URLs that its sessions may name, of providers and MCP servers. PrivateURLs may also lead to
	// private addresses.
	URLs        []string `yaml:"urls"`
	PrivateURLs []string `yaml:"private_urls"`
	// Providers are the server's own model providers that its sessions may use (provider_ref), with the host's keys
	// and at its expense.
	Providers []string `yaml:"providers"`
	// RuntimeProfileFields are the fields of RuntimeProfile that its callers may set.
	RuntimeProfileFields []string `yaml:"runtime_profile_fields"`
	// WarmRuntimes is how many of its CLI processes are kept ready with room for a session.
	WarmRuntimes int          `yaml:"warm_runtimes"`
	Limits       quota.Limits `yaml:"limits"`

	public, private []*url.URL // URLs and PrivateURLs
	// resolve looks up addresses; nil uses the system's resolver.
	resolve func(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// User is a user of the operating system.
type User struct {
	UID uint32 `yaml:"uid"`
	GID uint32 `yaml:"gid"`
}

// Member gives identities a role in a tenant: all given fields must match.
type Member struct {
	Role string `yaml:"role"`
	// SPIFFE is a SPIFFE id. "*" in it matches any text without a slash, a last segment "**" any number of segments.
	SPIFFE string `yaml:"spiffe"`
	// DNS is a DNS name of a client certificate.
	DNS string `yaml:"dns"`
	// Issuer, Subject and Claims match a JSON web token. A claim that is a list must contain the value.
	Issuer  string            `yaml:"issuer"`
	Subject string            `yaml:"subject"`
	Claims  map[string]string `yaml:"claims"`
	// Token is the name of a static token.
	Token string `yaml:"token"`
}

// maxFile bounds the size of a policy file and of a tokens file.
const maxFile = 4 << 20

// parse parses a policy file. Unknown keys are errors, because a misspelt key would be a missing rule.
func parse(text []byte) (*file, error) {
	f := &file{}
	d := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict())
	if err := d.Decode(f); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s", yaml.FormatError(err, false, false))
	}
	if f.Version != fileVersion {
		return nil, fmt.Errorf("version: %d is not supported, want %d", f.Version, fileVersion)
	}
	if err := errors.Join(f.Identity.check(), f.checkTenants(), f.Limits.Check("limits")); err != nil {
		return f, err
	}
	return f, f.completeLimits(text)
}

// completeLimits sets the limits that the file omits to their defaults. The host's owner has no limits.
func (f *file) completeLimits(text []byte) error {
	var given struct {
		Limits  map[string]any `yaml:"limits"`
		Tenants map[string]struct {
			Limits map[string]any `yaml:"limits"`
		} `yaml:"tenants"`
	}
	if err := yaml.Unmarshal(text, &given); err != nil {
		return err
	}
	in := func(limits map[string]any) func(string) bool {
		return func(name string) bool { return limits[name] != nil }
	}
	f.Limits.Complete(quota.OverallDefaults, in(given.Limits))
	for name, t := range f.Tenants {
		if name != caller.HostName {
			t.Limits.Complete(quota.TenantDefaults, in(given.Tenants[name].Limits))
		}
	}
	return nil
}

func (s *identitySection) check() error {
	var errs []error
	if len(s.TrustDomains) > 0 && !s.Certificates {
		errs = append(errs, errors.New("identity.trust_domains: it has no effect without certificates: true"))
	}
	if len(s.Proxies) > 0 && !s.Certificates {
		errs = append(errs, errors.New("identity.proxies: it has no effect without certificates: true"))
	}
	for i, p := range s.Proxies {
		if err := p.check(); err != nil {
			errs = append(errs, fmt.Errorf("identity.proxies[%d].%w", i, err))
		}
	}
	for i := range s.OIDC {
		if err := s.OIDC[i].check(); err != nil {
			errs = append(errs, fmt.Errorf("identity.oidc[%d].%w", i, err))
		}
		if slices.ContainsFunc(s.OIDC[:i], func(o issuer) bool { return o.Issuer == s.OIDC[i].Issuer }) {
			errs = append(errs, fmt.Errorf("identity.oidc[%d].issuer: %q occurs twice", i, s.OIDC[i].Issuer))
		}
	}
	return errors.Join(errs...)
}

func (o *issuer) check() error {
	u, err := url.Parse(o.Issuer)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("issuer: %q is not the URL of an issuer", o.Issuer)
	case u.Scheme != "https" && (u.Scheme != "http" || !o.InsecureHTTP):
		return fmt.Errorf("issuer: %q is not an https URL: set insecure_http: true to allow http", o.Issuer)
	case len(o.Audiences) == 0 || slices.Contains(o.Audiences, ""):
		return errors.New("audiences: at least one is required, to reject tokens for other services")
	case o.Skew < 0 || o.Skew > 10*time.Minute:
		return fmt.Errorf("skew: %v is not between 0s and 10m", o.Skew)
	case o.KeysMaxAge != 0 && (o.KeysMaxAge < time.Minute || o.KeysMaxAge > 24*time.Hour):
		return fmt.Errorf("keys_max_age: %v is not between 1m and 24h", o.KeysMaxAge)
	}
	for _, alg := range o.Algorithms {
		if !slices.Contains(identity.Algorithms, alg) {
			return fmt.Errorf("algorithms: %q is none of %s", alg, strings.Join(identity.Algorithms, ", "))
		}
	}
	if o.Login != nil {
		if err := o.Login.check(); err != nil {
			return fmt.Errorf("login.%w", err)
		}
	}
	return nil
}

func (f *file) checkTenants() error {
	var errs []error
	for name, t := range f.Tenants {
		if !caller.ValidTenant(name) {
			errs = append(errs, fmt.Errorf("tenants: %q must consist of at most 63 lower-case letters, digits and "+
				"dashes", name))
			continue
		}
		if t == nil {
			t = &Tenant{}
			f.Tenants[name] = t
		}
		if err := t.check(name, &f.Identity); err != nil {
			errs = append(errs, fmt.Errorf("tenants.%s.%w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (t *Tenant) check(name string, s *identitySection) error {
	if name == caller.HostName &&
		(t.Home != "" || len(t.Env) > 0 || t.User != nil || len(t.Sandbox) > 0 || t.Ambient || len(t.URLs)+
			len(t.PrivateURLs)+len(t.Providers) > 0 || t.RuntimeProfileFields != nil || t.WarmRuntimes != 0) {
		return errors.New("members: the tenant \"host\" has the rights of the server's process: only members and " +
			"limits can be set")
	}
	for i := range t.Members {
		if err := t.Members[i].check(s); err != nil {
			return fmt.Errorf("members[%d].%w", i, err)
		}
	}
	if t.Home != "" && !filepath.IsAbs(t.Home) {
		return fmt.Errorf("home: %q is not an absolute path", t.Home)
	}
	if t.Ambient && len(t.Sandbox) == 0 {
		return errors.New("ambient: it requires a sandbox, because the CLI's tools run commands")
	}
	if len(t.Sandbox) > 0 && t.Sandbox[0] == "" {
		return errors.New("sandbox: the command is empty")
	}
	switch {
	case t.User != nil && t.User.UID == 0:
		return errors.New("user: uid 0 does not confine the CLI: choose another user")
	case t.User != nil && t.Home == "":
		return errors.New("user: it requires a home, because only the server's user can access the data directory")
	}
	if t.WarmRuntimes < 0 {
		return fmt.Errorf("warm_runtimes: %d is negative", t.WarmRuntimes)
	}
	if err := t.Limits.Check("limits"); err != nil {
		return err
	}
	var err error
	if t.public, err = parseURLs(t.URLs); err != nil {
		return fmt.Errorf("urls%w", err)
	}
	if t.private, err = parseURLs(t.PrivateURLs); err != nil {
		return fmt.Errorf("private_urls%w", err)
	}
	return nil
}

func (m *Member) check(s *identitySection) error {
	if _, ok := caller.ParseRole(m.Role); !ok {
		return fmt.Errorf("role: %q is none of observer, participant, owner, admin", m.Role)
	}
	kinds := 0
	if m.SPIFFE != "" || m.DNS != "" {
		kinds++
		if !s.Certificates {
			return errors.New("spiffe: identity.certificates is off")
		}
		if i := slices.IndexFunc(s.Proxies, func(p proxy) bool { return p.isMember(m) }); i >= 0 {
			return fmt.Errorf("role: the member matches identity.proxies[%d]: a proxy must have no role, because all its "+
				"callers would have it. Remove the member, or narrow its name", i)
		}
		if m.SPIFFE != "" && !spiffePattern.MatchString(m.SPIFFE) {
			return fmt.Errorf("spiffe: %q is not a SPIFFE id, or has a \"*\" in its trust domain or a \"**\" before "+
				"its end", m.SPIFFE)
		}
	}
	if m.Issuer != "" || m.Subject != "" || len(m.Claims) > 0 {
		kinds++
		switch {
		case !slices.ContainsFunc(s.OIDC, func(o issuer) bool { return o.Issuer == m.Issuer }):
			return fmt.Errorf("issuer: %q is none of identity.oidc", m.Issuer)
		case m.Subject == "" && len(m.Claims) == 0:
			return errors.New("subject: subject or claims are required: to admit every identity of the issuer, set " +
				"subject: \"*\"")
		}
	}
	if m.Token != "" {
		kinds++
		if s.Tokens == "" {
			return errors.New("token: identity.tokens is not set")
		}
	}
	if kinds != 1 {
		return fmt.Errorf("role: a member needs exactly one of a certificate (spiffe, dns), a JSON web token "+
			"(issuer) and a token, not %d", kinds)
	}
	return nil
}

// spiffePattern is a SPIFFE id whose path may have wildcards.
var spiffePattern = regexp.MustCompile(`^spiffe://[a-z0-9._-]+(/[A-Za-z0-9._*-]+)*$`)

// matches reports whether the member matches an identity.
func (m *Member) matches(id *identity.Identity) bool {
	switch id.Source {
	case identity.Certificate:
		if m.SPIFFE == "" && m.DNS == "" {
			return false
		}
		return (m.SPIFFE == "" || matchSPIFFE(m.SPIFFE, id.SPIFFE)) && (m.DNS == "" || slices.Contains(id.DNS, m.DNS))
	case identity.JWT:
		if m.Issuer == "" || m.Issuer != id.Issuer || m.Subject != "" && m.Subject != "*" && m.Subject != id.Subject {
			return false
		}
		for name, want := range m.Claims {
			if !hasClaim(id.Claims[name], want) {
				return false
			}
		}
		return true
	case identity.StaticToken:
		return m.Token != "" && m.Token == id.Token
	}
	return false
}

// nameOf returns the name of a matching caller: of several names of a certificate the one that matched.
func (m *Member) nameOf(id *identity.Identity) string {
	switch {
	case id.Source == identity.Certificate && m.DNS != "" && m.SPIFFE == "":
		return id.Through(m.DNS)
	case id.Source == identity.Certificate && m.SPIFFE != "":
		return id.Through(id.SPIFFE)
	}
	return id.Name()
}

// matchSPIFFE compares segment by segment.
func matchSPIFFE(pattern, id string) bool {
	if prefix, ok := strings.CutSuffix(pattern, "/**"); ok {
		n := strings.Count(prefix, "/") + 1
		segments := strings.SplitN(id, "/", n+1)
		return len(segments) > n && segments[n] != "" && matchSPIFFE(prefix, strings.Join(segments[:n], "/"))
	}
	ok, err := path.Match(pattern, id)
	return ok && err == nil
}

// hasClaim reports whether a claim is a text or a list that contains it.
func hasClaim(claim any, want string) bool {
	switch claim := claim.(type) {
	case string:
		return claim == want
	case bool:
		return fmt.Sprint(claim) == want
	case []any:
		return slices.ContainsFunc(claim, func(one any) bool { return one == any(want) })
	}
	return false
}
