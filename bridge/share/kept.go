package share

import "github.com/copilot-grpc/copilot-grpc/bridge/caller"

// Kept is a grant as it is kept on disk.
type Kept struct {
	Class string `json:"class"`
	State State  `json:"state"`
}

// Keep returns the grants as they are kept, by tenant; nil if there are none.
func (s *Set) Keep() map[string]Kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.grants) == 0 {
		return nil
	}
	out := make(map[string]Kept, len(s.grants))
	for tenant, g := range s.grants {
		out[tenant] = Kept{Class: g.Class.String(), State: g.State}
	}
	return out
}

// Restore takes up kept grants. What it cannot read it leaves out: nobody gains a right by a
// damaged file. older are grants of a version that did not ask the other tenant for its consent,
// by the name of their class: they become offers. It returns how many there are of those.
func (s *Set) Restore(kept map[string]Kept, older map[string]string) (offers int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for tenant, k := range kept {
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

// shareable reads a class that a session may be shared for.
func shareable(name string) (caller.Class, bool) {
	class, ok := caller.ParseClass(name)
	return class, ok && (class == caller.Read || class == caller.Drive)
}
