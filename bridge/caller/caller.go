// Package caller identifies the caller of a call: the server puts a Caller into the call's context after
// authentication, and the bridge uses it to separate tenants. Authentication is not part of this package.
package caller

import (
	"context"
	"errors"
	"regexp"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// Role is a caller's role in its tenant. Each role includes the rights of the roles before it.
type Role uint8

const (
	// Nobody is the role without rights.
	Nobody Role = iota
	// Observer may read.
	Observer
	// Participant may also send prompts, answer callbacks and steer turns.
	Participant
	// Owner may also create, configure, share and end sessions, and use the host if the tenant may.
	Owner
	// Admin may also make calls that concern the whole server.
	Admin
)

// Class is the kind of a call, by the rights that it requires.
type Class uint8

const (
	// Unclassed calls are denied to all callers.
	Unclassed Class = iota
	// Read calls only read.
	Read
	// Drive calls send prompts, answer callbacks and steer turns.
	Drive
	// Own calls create, configure, share and end sessions.
	Own
	// Host calls use the machine: commands, paths, networks, accounts.
	Host
	// Operate calls concern the whole server.
	Operate
)

var (
	roles   = [...]string{"nobody", "observer", "participant", "owner", "admin"}
	classes = [...]string{"unclassed", "read", "drive", "own", "host", "operate"}
)

// String returns the role's name in policy files.
func (r Role) String() string { return roles[r] }

// String returns the class's name in tables.
func (c Class) String() string { return classes[c] }

// ParseRole returns the role with a name; Nobody and false if there is none.
func ParseRole(name string) (Role, bool) {
	i := slices.Index(roles[Observer:], name) + 1
	return Role(i), i > 0
}

// ParseClass returns the class with a name; Unclassed and false if there is none.
func ParseClass(name string) (Class, bool) {
	i := slices.Index(classes[Read:], name) + 1
	return Class(i), i > 0
}

// needs is the lowest role for each class.
var needs = [...]Role{Read: Observer, Drive: Participant, Own: Owner, Host: Owner, Operate: Admin}

// ErrWithdrawn matches, by errors.Is, the cause of a context that ended because its caller lost the right to the
// call. A retry by the same caller will fail.
var ErrWithdrawn = errors.New("the caller's rights were withdrawn")

// HostTenant is the tenant of the machine's owner. It has the rights of the server's process. Its name in policy
// files is HostName.
const (
	HostTenant = ""
	HostName   = "host"
)

// tenantName is the pattern of tenant names, which are used in file names.
var tenantName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// ValidTenant reports whether name is a valid tenant name.
func ValidTenant(name string) bool { return tenantName.MatchString(name) }

// Caller is the identity and the rights of a caller.
type Caller struct {
	// Tenant owns the sessions that the caller sees; HostTenant is the machine's owner.
	Tenant string
	// Name is the caller's name for logs. It is not secret.
	Name string
	// Identity distinguishes callers with the same name. It is not secret.
	Identity string
	// Peer is the origin of the call for logs: a network address, or "unix".
	Peer string
	// Role is the caller's role.
	Role Role
	// Class is the class of the current call; Unclassed if it is unknown.
	Class Class
	// Confined reports that a sandbox confines what the tenant's sessions do to the machine. The host's own tenant
	// needs none.
	Confined bool
}

// owner is the caller of a context that no server has set a caller for: the program itself.
var owner = Caller{Tenant: HostTenant, Name: "process", Role: Admin}

type key struct{}

// With returns a context with the caller.
func With(ctx context.Context, c Caller) context.Context { return context.WithValue(ctx, key{}, &c) }

// Refer is With without a copy: the caller must not change any more.
func Refer(ctx context.Context, c *Caller) context.Context { return &referring{ctx, c} }

// referring is a context with a caller, in half the memory of one of package context.
type referring struct {
	context.Context //nolint:containedctx // it is one

	caller *Caller
}

// Value implements context.Context.
func (r *referring) Value(k any) any {
	if k == (key{}) {
		return r.caller
	}
	return r.Context.Value(k)
}

// From returns the caller of a context. Without a server this is the program itself.
func From(ctx context.Context) Caller {
	if c, ok := ctx.Value(key{}).(*Caller); ok {
		return *c
	}
	return owner
}

type guestKey struct{}

// WithGuestCheck returns a context for a call whose request the server can check by the rules for guests. check is
// called each time the call reaches a session of another tenant, with that tenant, and returns an error if the call
// is not permitted. It must be safe for concurrent use.
func WithGuestCheck(ctx context.Context, check func(owner string) error) context.Context {
	return context.WithValue(ctx, guestKey{}, check)
}

// CheckGuest calls the check of WithGuestCheck. Without a server there is no check, because the program itself is
// trusted.
func CheckGuest(ctx context.Context, owner string) error {
	if check, ok := ctx.Value(guestKey{}).(func(string) error); ok {
		return check(owner)
	}
	return nil
}

type requestKey struct{}

// WithRequestCheck returns a context with the server's check of the call's requests: check returns an error if the
// caller may not set a field of a message.
func WithRequestCheck(ctx context.Context, check func(context.Context, proto.Message) error) context.Context {
	return context.WithValue(ctx, requestKey{}, check)
}

// CheckRequest calls the check of WithRequestCheck for a message that arrived inside another one, such as in a file,
// so that the server has not checked it. Without a server there is no check, because the program itself is trusted.
func CheckRequest(ctx context.Context, m proto.Message) error {
	if check, ok := ctx.Value(requestKey{}).(func(context.Context, proto.Message) error); ok {
		return check(ctx, m)
	}
	return nil
}

// May reports whether the caller may make calls of the class.
func (c Caller) May(class Class) bool {
	if class == Unclassed || c.Role < needs[class] {
		return false
	}
	return class != Host || c.Tenant == HostTenant || c.Confined
}

// Require returns FORBIDDEN unless the caller may make calls of the class. what names the operation in the error.
func (c Caller) Require(class Class, what string) error {
	switch {
	case c.May(class):
		return nil
	case class == Unclassed:
		return fault.New(fault.Forbidden, "%s has no class in this server's policy, so it is denied to every caller", what)
	case class == Host && c.Role >= needs[Host]:
		return fault.New(fault.Forbidden, "%s affects the host: only the host's owner or a tenant with a sandbox may use it", what)
	}
	return fault.New(fault.Forbidden, "%s requires the role %q, the caller has %q", what, needs[class], c.Role)
}
