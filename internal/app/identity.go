package app

import (
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
	"github.com/copilot-grpc/copilot-grpc/server/xds"
)

// checkSecurity looks at how callers are to be known.
func (c *Config) checkSecurity() error {
	switch {
	case c.TLSCert == "" && c.TLSKey != "":
		return wrongf("tls_key", "TLS requires a certificate (tls_cert)")
	case c.TLSCert != "" && c.TLSKey == "":
		return wrongf("tls_cert", "TLS requires a key (tls_key)")
	case c.TLSClientCA != "" && c.TLSCert == "":
		return wrongf("tls_client_ca", "a CA of client certificates requires TLS (tls_cert, tls_key)")
	case c.TLSClientCRL != "" && c.TLSClientCA == "":
		return wrongf("tls_client_crl", "revocation lists require a CA of client certificates (tls_client_ca)")
	case c.Policy != "" && c.Token != "":
		return wrongf("token", "with a policy the server has no token: give a static token a role in the tenant "+
			"\"host\"")
	case c.Policy != "" && c.Dial != "":
		return wrongf("dial", "tenants cannot share a dialled CLI server: policy and dial exclude each other")
	case c.XDS:
		return c.checkXDS()
	}
	return nil
}

// checkXDS looks at what a control plane may configure.
func (c *Config) checkXDS() error {
	switch {
	case !xds.Built:
		return wrong("xds", xds.ErrNotBuilt)
	case !c.wide():
		return wrongf("xds", "a control plane could turn TLS and identities off: set TLS (tls_cert, tls_key) and a "+
			"policy (policy) of the server's own")
	case !slices.ContainsFunc(c.Listen, func(address string) bool { return !strings.HasPrefix(address, unixPrefix) }):
		return wrongf("xds", "a control plane configures TCP addresses: add one to listen, HOST:PORT")
	}
	return nil
}

// wide tells whether addresses may be reached from elsewhere.
func (c *Config) wide() bool { return c.TLSCert != "" && c.Policy != "" }

func (a *App) openPolicy(logger *slog.Logger) (*policy.Store, error) {
	c := &a.config
	if c.Policy == "" {
		return nil, nil
	}
	store, err := policy.Open(c.Policy, logger, time.Now)
	if err != nil {
		return nil, err
	}
	store.Check(func(p *policy.Policy) error { return a.current.Load().checkPolicy(p, logger) })
	return store, c.checkPolicy(store.Current(), logger)
}

// tls are the server's certificates, nil if it has none.
func (c *Config) tls() *server.TLS {
	if c.TLSCert == "" {
		return nil
	}
	return &server.TLS{CertFile: c.TLSCert, KeyFile: c.TLSKey, ClientCAFile: c.TLSClientCA,
		ClientCRLFile: c.TLSClientCRL}
}

// tenants says how the bridge treats the tenants of a policy: as it is at the time.
func (a *App) tenants(own runtime.Profile) func(name string) (tenancy.Tenant, bool) {
	if a.policy == nil {
		return nil
	}
	return func(name string) (tenancy.Tenant, bool) {
		now := a.policy.Current()
		t, ok := now.Tenant(name)
		if !ok {
			return tenancy.Tenant{}, false
		}
		if t.Limits.Runtimes == 0 && name != caller.HostTenant {
			t.Limits.Runtimes = share(a.current.Load().MaxRuntimes, now.Size())
		}
		if t.Limits.RuntimeStartsPerMinute == 0 && name != caller.HostTenant {
			t.Limits.RuntimeStartsPerMinute = DefaultRuntimeStarts
		}
		return a.config.tenant(name, t, own), true
	}
}

// DefaultRuntimeStarts is how many CLI processes a tenant may start in a minute of whom the policy
// does not say.
const DefaultRuntimeStarts = 30

// share is how many CLI processes a tenant may have of whom the policy does not say: as many
// as are left to each, the host's owner among them, if all want the same. None can use up
// what others need then.
func share(runtimes, tenants int) int { return max(1, runtimes/(tenants+1)) }

// tenant is how the bridge treats a tenant. Nothing of the server's own profile that is the
// host owner's gets into it: neither token nor login, home nor environment.
func (c *Config) tenant(name string, t policy.Tenant, own runtime.Profile) tenancy.Tenant {
	root := t.Home
	if root == "" {
		root = filepath.Join(c.dataDir(), "tenants", name)
	}
	profile := runtime.Profile{
		Tenant: name, LogLevel: own.LogLevel, Sandbox: t.Sandbox, Env: maps.Clone(t.Env),
		Home: filepath.Join(root, "copilot"), UserHome: filepath.Join(root, "home"), Dir: filepath.Join(root, "work"),
	}
	if t.User != nil {
		profile.User = &runtime.User{UID: t.User.UID, GID: t.User.GID}
	}
	fields := t.RuntimeProfileFields
	return tenancy.Tenant{
		Profile: profile, ProfileFields: fields, Providers: t.Providers, Ambient: t.Ambient,
		Confined: len(t.Sandbox) > 0,
		Limits:   t.Limits,
	}
}

// dataDir is the data directory under its whole name.
func (c *Config) dataDir() string {
	dir, err := filepath.Abs(c.DataDir)
	if err != nil {
		return c.DataDir
	}
	return dir
}

// overall returns the current limits of all tenants together.
func overall(p *policy.Store) func() quota.Limits {
	if p == nil {
		return nil
	}
	return func() quota.Limits { return p.Current().Limits() }
}
