package tenancy

import "github.com/copilot-grpc/copilot-grpc/bridge/caller"

// SavedShare is the saved form of a grant.
type SavedShare struct {
	Class string     `json:"class"`
	State ShareState `json:"state"`
}

// Records returns the saved form of the grants by tenant; nil if there are none.
func (s *Shares) Records() map[string]SavedShare {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.grants) == 0 {
		return nil
	}
	out := make(map[string]SavedShare, len(s.grants))
	for tenant, g := range s.grants {
		out[tenant] = SavedShare{Class: g.Class.String(), State: g.State}
	}
	return out
}

// Restore adds saved grants. It omits unreadable ones, so that a damaged file grants no rights. older are grants of a
// version that did not ask the other tenant for consent, by the name of their class: they become offers. Restore
// returns the count of those.
func (s *Shares) Restore(saved map[string]SavedShare, older map[string]string) (offers int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for tenant, k := range saved {
		class, ok := shareable(k.Class)
		if ok && (k.State == Offered || k.State == Accepted || k.State == Declined) {
			s.put(tenant, Grant{Class: class, State: k.State})
		}
	}
	for tenant, name := range older {
		class, ok := shareable(name)
		if _, has := s.grants[tenant]; ok && !has {
			s.put(tenant, Grant{Class: class, State: Offered})
			offers++
		}
	}
	return offers
}

// shareable parses a class that a session may be shared for.
func shareable(name string) (caller.Class, bool) {
	class, ok := caller.ParseClass(name)
	return class, ok && (class == caller.Read || class == caller.Drive)
}
