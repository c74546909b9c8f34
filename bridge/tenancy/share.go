package tenancy

import (
	"maps"
	"strings"
	"sync"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
)

// MaxShares bounds the tenants that a session is shared with, including offers and declined ones.
const MaxShares = 64

// shareSeparator stands between the owner and the id in a name. It occurs in no session id and no tenant name, so a name
// never equals an id.
const shareSeparator = "/"

// ShareName returns the name of a shared session for the tenants that it is shared with.
func ShareName(owner, id string) string {
	return PublicTenant(owner) + shareSeparator + id
}

// ParseShareName splits the name of a shared session into its owner and its id. ok is false for any other text, such as a
// tenant's own session ids. The id is not checked.
func ParseShareName(name string) (owner, id string, ok bool) {
	owner, id, ok = strings.Cut(name, shareSeparator)
	if !ok || !caller.ValidTenant(owner) {
		return "", "", false
	}
	return InternalTenant(owner), id, true
}

// PublicTenant returns the name of a tenant in the API and in policy files.
func PublicTenant(tenant string) string {
	if tenant == caller.HostTenant {
		return caller.HostName
	}
	return tenant
}

// InternalTenant returns the bridge's name of a tenant of the API.
func InternalTenant(name string) string {
	if name == caller.HostName {
		return caller.HostTenant
	}
	return name
}

// ShareState is the progress of a share. It is stored on disk.
type ShareState string

const (
	Offered  ShareState = "offered"
	Accepted ShareState = "accepted"
	Declined ShareState = "declined"
)

// Grant is the access that the owner gave a tenant.
type Grant struct {
	// Class is the highest class of calls that the tenant may make: caller.Read or caller.Drive.
	Class caller.Class
	// State tells whether the tenant has accepted. Before that it has no access.
	State ShareState
}

// effective returns the highest class of calls that the tenant may make now.
func (g Grant) effective() caller.Class {
	if g.State != Accepted {
		return caller.Unclassed
	}
	return g.Class
}

// Guest is a call in progress from a tenant that the session is shared with.
type Guest struct {
	Tenant string
	Class  caller.Class
	// End is called once, when the share no longer permits the call. No lock of the Shares is held.
	End func()
}

// Shares are the tenants that one session is shared with: offers, their acceptance, and the calls in progress of those
// tenants. The zero value has none. It is safe for concurrent use.
type Shares struct {
	mu     sync.Mutex
	grants map[string]Grant
	guests map[*Guest]struct{}
}

// Offer offers the session to a tenant for calls up to class. A tenant that has accepted before keeps access, with
// the new class. A tenant that has declined receives a new offer. Offer returns false if the session already has Max
// grants.
func (s *Shares) Offer(tenant string, class caller.Class) bool {
	return s.change(func() bool {
		g, had := s.grants[tenant]
		if !had && len(s.grants) >= MaxShares {
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

// Withdraw removes a tenant's grant and reports whether the tenant had accepted it.
func (s *Shares) Withdraw(tenant string) (accepted bool) {
	s.change(func() bool {
		accepted = s.grants[tenant].State == Accepted
		delete(s.grants, tenant)
		return true
	})
	return accepted
}

// Accept accepts a tenant's offer. known is false if there is no offer or it was declined. changed is false if it was
// already accepted.
func (s *Shares) Accept(tenant string) (known, changed bool) {
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

// Decline declines a tenant's offer or gives up accepted access. before is the previous state; empty if the session
// is not shared with the tenant.
func (s *Shares) Decline(tenant string) (before ShareState) {
	s.change(func() bool {
		g, has := s.grants[tenant]
		if before = g.State; has {
			s.put(tenant, Grant{Class: g.Class, State: Declined})
		}
		return has
	})
	return before
}

// put stores a grant. The caller holds mu.
func (s *Shares) put(tenant string, g Grant) {
	if s.grants == nil {
		s.grants = map[string]Grant{}
	}
	s.grants[tenant] = g
}

// change applies f under the lock, and then ends the calls that are no longer permitted.
func (s *Shares) change(f func() bool) bool {
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

// Class returns the highest class of calls that a tenant may make; caller.Unclassed if the tenant has not accepted.
func (s *Shares) Class(tenant string) caller.Class {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.grants[tenant].effective()
}

// Grant returns a tenant's grant.
func (s *Shares) Grant(tenant string) (g Grant, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g, ok = s.grants[tenant]
	return g, ok
}

// Grants returns all grants by tenant.
func (s *Shares) Grants() map[string]Grant {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.grants)
}

// Enter registers a guest's call if the grant permits it. The caller must call leave when the call ends.
func (s *Shares) Enter(g *Guest) (leave func(), ok bool) {
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
