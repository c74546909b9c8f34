package bridge

import (
	"context"
	"slices"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/bridge/registry"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
)

// Tenant is how the bridge treats a tenant other than the host's own.
type Tenant struct {
	// Profile is what the tenant's runtimes are like unless a caller says otherwise. Its
	// Tenant is the tenant's name. Sandbox and User of it are in force whatever a session's
	// own profile is.
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
	// Providers are those of the bridge's own that its sessions may name. The host's own
	// tenant may name all.
	Providers []string
	// Limits bound what it may use.
	Limits quota.Limits
}

// known returns the session of that id that the caller's own tenant has; nil if it has
// none. Sessions of other tenants have names, not ids, and are not found.
func (b *Bridge) known(ctx context.Context, id string) *registry.Entry {
	return b.sessions.Get(session.Key(caller.From(ctx).Tenant, id))
}

// find returns the session that the caller means by an id or, of a session that is shared with
// its tenant, by a name. It is the one look-up for callers: a session of another tenant comes out
// of it only if that tenant shares it for what the call does, the caller's tenant has accepted,
// and the server has checked what the call says by the rules for guests. That a session is
// another tenant's, and that there is none, take the same look-ups and give the same answer.
func (b *Bridge) find(ctx context.Context, id string) (*registry.Entry, error) {
	c := caller.From(ctx)
	e := b.sessions.Get(tenancy.KeyOf(c.Tenant, id))
	if e == nil {
		return nil, session.NotFound(id)
	}
	if !tenancy.IsShared(id) {
		return e, nil
	}
	granted := e.Shares.Class(c.Tenant)
	if granted == caller.Unclassed {
		return nil, session.NotFound(id)
	}
	if c.Class > granted {
		return nil, fault.New(fault.Forbidden, "session %q is shared with the tenant for calls of the class %q, this call has the class %q",
			id, granted, c.Class).WithField("session_id")
	}
	return e, caller.CheckGuest(ctx, e.Session.Tenant())
}

// checkOwn checks the id of a session for what only its own tenant does with it.
func (b *Bridge) checkOwn(ctx context.Context, id, field string) error {
	if !tenancy.IsShared(id) {
		return tenancy.CheckID(id, field)
	}
	if _, err := b.find(ctx, id); err != nil {
		return fields.Rename(err, "session_id", field)
	}
	return fault.New(fault.Forbidden, "session %q is another tenant's: only that tenant resumes and disconnects it", id).WithField(field)
}

// shows reports whether a tenant may know of a session: its own, or one whose share it has
// accepted.
func shows(e *registry.Entry, tenant string) bool {
	return e.Session.Tenant() == tenant || e.Shares.Class(tenant) != caller.Unclassed
}

// visible returns the sessions that the caller may know of and use, those that are shared with
// its tenant included, in no order. nameOf is what the caller calls each.
func (b *Bridge) visible(ctx context.Context) []*registry.Entry {
	tenant := caller.From(ctx).Tenant
	return slices.DeleteFunc(b.all(), func(e *registry.Entry) bool { return !shows(e, tenant) })
}

// tenant returns how a tenant is treated; false when there is none of the name.
func (b *Bridge) tenant(name string) (Tenant, bool) {
	if name == caller.HostTenant {
		t := Tenant{Profile: b.cfg.Profile, ProfileFields: b.cfg.Policy.Fields, Homes: b.cfg.Policy.Homes, Ambient: true, Confined: true}
		if b.cfg.Tenant != nil {
			said, _ := b.cfg.Tenant(name)
			t.Limits = said.Limits
		}
		return t, true
	}
	if b.cfg.Tenant == nil {
		return Tenant{}, false
	}
	return b.cfg.Tenant(name)
}

// profileOf is what the runtimes of a tenant are like by default. One that is no tenant any
// more has none that could be started: confined sees to that.
func (b *Bridge) profileOf(tenant string) runtime.Profile {
	t, ok := b.tenant(tenant)
	if !ok {
		return runtime.Profile{Tenant: tenant}
	}
	return t.Profile
}

// own is what the runtimes of the caller's tenant are like by default.
func (b *Bridge) own(ctx context.Context) runtime.Profile {
	return b.profileOf(caller.From(ctx).Tenant)
}

// confined returns a profile with what confines its tenant now. base is the tenant's own profile
// when p was made.
func (b *Bridge) confined(p, base runtime.Profile) (runtime.Profile, error) {
	if p.Tenant == caller.HostTenant {
		return p, nil
	}
	t, ok := b.tenant(p.Tenant)
	if !ok {
		return p, fault.New(fault.Forbidden, "there is no tenant %q any more", p.Tenant)
	}
	return t.confine(p, base)
}

// runtimesOf returns the runtimes that a caller may know of: its tenant's, or all.
func (b *Bridge) runtimesOf(c caller.Caller) []*binding {
	return slices.DeleteFunc(b.fleet.All(), func(bind *binding) bool {
		return bind.profile.Tenant != c.Tenant && !c.May(caller.Operate)
	})
}

// limits returns what a tenant may use.
func (b *Bridge) limits(tenant string) quota.Limits {
	t, _ := b.tenant(tenant)
	return t.Limits
}

// overall returns what all tenants together may use.
func (b *Bridge) overall() quota.Limits {
	if b.cfg.Limits == nil {
		return quota.Limits{}
	}
	return b.cfg.Limits()
}
