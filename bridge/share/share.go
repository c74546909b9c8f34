// Package share keeps with which tenants a session is shared: what was offered, what was
// accepted, and which calls of those tenants are under way. It also forms the names by which
// those tenants use the session. It knows nothing of sessions.
package share

import (
	"maps"
	"strings"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
)

// Max bounds the tenants that a session is shared with, offers and declined ones included.
const Max = 64

// separator is between the owner and the id in a name. It is in no session's id and in no
// tenant's name, so that a name is never an id of somebody's own.
const separator = "/"

// Name is the name of a shared session for the tenants that it is shared with.
func Name(owner, id string) string {
	return PublicTenant(owner) + separator + id
}

// ParseName splits the name of a shared session into its owner and the id there. ok is false
// for anything else, ids of a tenant's own included; the id is not checked.
func ParseName(name string) (owner, id string, ok bool) {
	owner, id, ok = strings.Cut(name, separator)
	if !ok || !caller.ValidTenant(owner) {
		return "", "", false
	}
	return InternalTenant(owner), id, true
}

// PublicTenant is what the API and policy files call a tenant.
func PublicTenant(tenant string) string {
	if tenant == caller.HostTenant {
		return caller.HostName
	}
	return tenant
}

// InternalTenant is what the bridge calls a tenant of the API.
func InternalTenant(name string) string {
	if name == caller.HostName {
		return caller.HostTenant
	}
	return name
}

// State says how far a share has come. It is kept on disk.
type State string

// The states.
const (
	Offered  State = "offered"
	Accepted State = "accepted"
	Declined State = "declined"
)

// Grant is what a tenant was given.
type Grant struct {
	// Class is the highest class of calls that the tenant may make: caller.Read or caller.Drive.
	Class caller.Class
	// State says whether the tenant has accepted it. Unless it has, it may do nothing.
	State State
}

// effective is the highest class of calls that the tenant may make now.
func (g Grant) effective() caller.Class {
	if g.State != Accepted {
		return caller.Unclassed
	}
	return g.Class
}

// Guest is a call under way of a tenant that the session is shared with.
type Guest struct {
	Tenant string
	Class  caller.Class
	// End is called once, when the session is no longer shared for what the call does. No
	// lock of the Set is held.
	End func()
}

// Set is with which tenants one session is shared. The zero Set shares it with none. It is
// safe for concurrent use.
type Set struct {
	mu     sync.Mutex
	grants map[string]Grant
	guests map[*Guest]struct{}
}

// Offer offers the session to a tenant for calls up to class. A tenant that has accepted keeps
// it, for the new class; one that has declined has a new offer. It returns false if the session
// is shared with Max others.
func (s *Set) Offer(tenant string, class caller.Class) bool {
	return s.change(func() bool {
		g, had := s.grants[tenant]
		if !had && len(s.grants) >= Max {
			return false
		}
		if g.State != Accepted {
			g.State = Offered
		}
		g.Class = class
		s.put(tenant, g)
		return true
	})
}

// Withdraw takes a tenant's grant back, and returns whether the tenant had accepted it.
func (s *Set) Withdraw(tenant string) (accepted bool) {
	s.change(func() bool {
		accepted = s.grants[tenant].State == Accepted
		delete(s.grants, tenant)
		return true
	})
	return accepted
}

// Accept accepts what a tenant was offered. known is false if there is no offer, or it was
// declined; changed is false if it had been accepted before.
func (s *Set) Accept(tenant string) (known, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, has := s.grants[tenant]
	if !has || g.State == Declined {
		return false, false
	}
	changed = g.State != Accepted
	g.State = Accepted
	s.put(tenant, g)
	return true, changed
}

// Decline declines what a tenant was offered, or gives up what it has accepted. before is the
// state until then, empty if the session is not shared with the tenant.
func (s *Set) Decline(tenant string) (before State) {
	s.change(func() bool {
		g, has := s.grants[tenant]
		if before = g.State; has {
			s.put(tenant, Grant{Class: g.Class, State: Declined})
		}
		return has
	})
	return before
}

// put notes a grant. The caller holds mu.
func (s *Set) put(tenant string, g Grant) {
	if s.grants == nil {
		s.grants = map[string]Grant{}
	}
	s.grants[tenant] = g
}

// change makes a change under the lock, and then ends the calls that it leaves without a right.
func (s *Set) change(f func() bool) bool {
	s.mu.Lock()
	ok := f()
	var gone []*Guest
	for g := range s.guests {
		if g.Class > s.grants[g.Tenant].effective() {
			gone = append(gone, g)
			delete(s.guests, g)
		}
	}
	s.mu.Unlock()
	for _, g := range gone {
		g.End()
	}
	return ok
}

// Class returns the highest class of calls that a tenant may make: caller.Unclassed unless it
// has accepted.
func (s *Set) Class(tenant string) caller.Class {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grants[tenant].effective()
}

// Grant returns what a tenant was given.
func (s *Set) Grant(tenant string) (g Grant, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok = s.grants[tenant]
	return g, ok
}

// Grants returns all grants by tenant.
func (s *Set) Grants() map[string]Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.grants)
}

// Enter notes a guest, unless what it does is not granted. leave is to be called when the call
// is over.
func (s *Set) Enter(g *Guest) (leave func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g.Class > s.grants[g.Tenant].effective() {
		return func() {}, false
	}
	if s.guests == nil {
		s.guests = map[*Guest]struct{}{}
	}
	s.guests[g] = struct{}{}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.guests, g)
	}, true
}
