// Package caller says who makes a call: the plain value that the server puts into a call's
// context once it knows, and by which the bridge tells tenants apart. It knows nothing of
// how callers prove who they are.
package caller

import (
	"context"
	"errors"
	"regexp"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// Role is what a caller may do in its tenant. Each role has the rights of those before it.
type Role uint8

// The roles.
const (
	// Nobody may do nothing.
	Nobody Role = iota
	// Observer may look on.
	Observer
	// Participant may also talk, answer and steer.
	Participant
	// Owner may also make, configure, share and end sessions, and touch the host where
	// the tenant may.
	Owner
	// Admin may also what concerns the server as a whole.
	Admin
)

// Class is what a call does, by the rights that it takes.
type Class uint8

// The classes.
const (
	// Unclassed calls are denied to everybody.
	Unclassed Class = iota
	// Read looks on.
	Read
	// Drive talks, answers and steers.
	Drive
	// Own makes, configures, shares and ends sessions.
	Own
	// Host touches the machine: commands, paths, networks, accounts.
	Host
	// Operate concerns the server as a whole.
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

// ParseRole returns the role of a name, Nobody and false if there is none.
func ParseRole(name string) (Role, bool) {
	for i := Observer; i <= Admin; i++ {
		if roles[i] == name {
			return i, true
		}
	}
	return Nobody, false
}

// ParseClass returns the class of a name, Unclassed and false if there is none.
func ParseClass(name string) (Class, bool) {
	for i := Read; i <= Operate; i++ {
		if classes[i] == name {
			return i, true
		}
	}
	return Unclassed, false
}

// needs is the role that a class takes at least.
var needs = [...]Role{Read: Observer, Drive: Participant, Own: Owner, Host: Owner, Operate: Admin}

// ErrWithdrawn is what the cause is, by errors.Is, with which the context of a call ends whose
// caller has lost the right to it: whoever it was will not be back by right.
var ErrWithdrawn = errors.New("the caller's rights were withdrawn")

// HostTenant is the tenant of the machine's owner, with the rights of the process itself.
// Policy files call it HostName.
const (
	HostTenant = ""
	HostName   = "host"
)

// tenantName is the form of a tenant's name: it becomes part of file names.
var tenantName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// ValidTenant reports whether a tenant may have the name.
func ValidTenant(name string) bool { return tenantName.MatchString(name) }

// Caller is who makes a call.
type Caller struct {
	// Tenant is whose sessions the caller sees; HostTenant is the machine's owner.
	Tenant string
	// Name is who it is, for logs; no secret.
	Name string
	// Identity tells callers of the same name apart; no secret.
	Identity string
	// Peer is where the call comes from, for logs: a network address, or "unix".
	Peer string
	// Role is what the caller may do.
	Role Role
	// Class is what the call under way does; Unclassed where that is not known.
	Class Class
	// Confined says that what the tenant's sessions do to the machine is confined: by a
	// sandbox. The host's own tenant needs none.
	Confined bool
}

// owner is who calls where no server has said who does: the program itself.
var owner = Caller{Tenant: HostTenant, Name: "process", Role: Admin}

type key struct{}

// With returns a context that says who calls.
func With(ctx context.Context, c Caller) context.Context { return context.WithValue(ctx, key{}, &c) }

// From returns who calls. Without a server in between that is the program itself.
func From(ctx context.Context) Caller {
	if c, ok := ctx.Value(key{}).(*Caller); ok {
		return *c
	}
	return owner
}

type guestKey struct{}

// WithGuestCheck returns a context of a call whose request the server can check by the rules for
// guests. check is called each time that the call comes to a session of another tenant, with that
// tenant, and returns why the call may not have it. It is safe for concurrent use.
func WithGuestCheck(ctx context.Context, check func(owner string) error) context.Context {
	return context.WithValue(ctx, guestKey{}, check)
}

// CheckGuest asks the check of WithGuestCheck. Where no server is in between there is none, and
// the program itself answers for what it says.
func CheckGuest(ctx context.Context, owner string) error {
	if check, ok := ctx.Value(guestKey{}).(func(string) error); ok {
		return check(owner)
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

// Require returns FORBIDDEN unless the caller may make calls of the class. what says what
// for.
func (c Caller) Require(class Class, what string) error {
	switch {
	case c.May(class):
		return nil
	case class == Unclassed:
		return fault.New(fault.Forbidden, "%s has no class in this server's policy, and is denied to everybody until it has", what)
	case class == Host && c.Role >= needs[Host]:
		return fault.New(fault.Forbidden, "%s touches the host, which takes the host's owner or a tenant with a sandbox", what)
	}
	return fault.New(fault.Forbidden, "%s takes the role %q, the caller has %q", what, needs[class], c.Role)
}
