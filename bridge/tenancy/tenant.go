package tenancy

import (
	"context"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
)

// Tenant is how a tenant is treated.
type Tenant struct {
	// Profile is the default profile of the tenant's runtimes. Its Tenant is the tenant's name. Its Sandbox and
	// User apply to all profiles of the tenant.
	Profile runtime.Profile
	// ProfileFields are the members of RuntimeProfile that the tenant's callers may set. Nil
	// is DefaultProfileFields.
	ProfileFields []string
	// Homes are the directories that home_name stands for.
	Homes map[string]string
	// Ambient gives the tenant's sessions the CLI's own tools, instructions and discovery
	// where they do not say otherwise; they have none of them by default.
	Ambient bool
	// Confined says that a sandbox confines what its sessions do to the host.
	Confined bool
	// Providers are the names of the bridge's model providers that the tenant's sessions may use. The host's
	// own tenant may use all.
	Providers []string
	// Limits bound what it may use.
	Limits quota.Limits
}

// Tenants says how each tenant is treated. Its fields must not change while it is in use; it is safe for
// concurrent use.
type Tenants struct {
	// Host is the host's own tenant.
	Host Tenant
	// Lookup returns how another tenant is treated; false when there is none of that name. Of the host's own tenant
	// only the limits are used. Nil: there are no other tenants.
	Lookup func(name string) (Tenant, bool)
	// Dialed says that the one runtime is a CLI server that others run, whose profile callers cannot change.
	Dialed bool
}

// Get returns how a tenant is treated; false when there is none of the name.
func (t *Tenants) Get(name string) (Tenant, bool) {
	switch {
	case name != caller.HostTenant && t.Lookup == nil:
		return Tenant{}, false
	case name != caller.HostTenant:
		return t.Lookup(name)
	}
	host := t.Host
	if t.Lookup != nil {
		configured, _ := t.Lookup(name)
		host.Limits = configured.Limits
	}
	return host, true
}

// ProfileOf returns the default profile of a tenant's runtimes. The profile of a tenant that does not exist any more
// cannot be started: Confined refuses it.
func (t *Tenants) ProfileOf(name string) runtime.Profile {
	tenant, ok := t.Get(name)
	if !ok {
		return runtime.Profile{Tenant: name}
	}
	return tenant.Profile
}

// CallerProfile returns the default profile of the runtimes of the caller's tenant.
func (t *Tenants) CallerProfile(ctx context.Context) runtime.Profile {
	return t.ProfileOf(caller.From(ctx).Tenant)
}

// Confined returns a profile with what confines its tenant now. base is the tenant's own profile when p was made.
func (t *Tenants) Confined(p, base runtime.Profile) (runtime.Profile, error) {
	if p.Tenant == caller.HostTenant {
		return p, nil
	}
	tenant, ok := t.Get(p.Tenant)
	if !ok {
		return p, fault.New(fault.Forbidden, "the tenant %q no longer exists", p.Tenant)
	}
	return tenant.Confine(p, base)
}

// Stale reports whether a runtime of the profile has another confinement than the policy's. No policy confines the
// host's own tenant.
func (t *Tenants) Stale(p runtime.Profile) bool {
	if p.Tenant == caller.HostTenant {
		return false
	}
	tenant, ok := t.Get(p.Tenant)
	return !ok || p.Confinement != tenant.Confinement()
}

// Limits returns what a tenant may use.
func (t *Tenants) Limits(name string) quota.Limits {
	tenant, _ := t.Get(name)
	return tenant.Limits
}

// MayName reports whether a tenant may name a model provider of the server's configuration.
func (t *Tenants) MayName(name, provider string) bool {
	tenant, ok := t.Get(name)
	return ok && (name == caller.HostTenant || slices.Contains(tenant.Providers, provider))
}
