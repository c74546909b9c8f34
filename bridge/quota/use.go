package quota

// Use is how much of what Limits bound a tenant uses, or all tenants together.
type Use struct {
	Sessions       int   `json:"sessions,omitempty"`
	LoadedSessions int   `json:"loaded,omitempty"`
	Runtimes       int   `json:"runtimes,omitempty"`
	Turns          int   `json:"turns,omitempty"`
	Participants   int   `json:"participants,omitempty"`
	Callbacks      int   `json:"callbacks,omitempty"`
	JournalBytes   int64 `json:"bytes,omitempty"`
}

// Plus returns the sum of two uses.
func (u Use) Plus(o Use) Use {
	u.Sessions += o.Sessions
	u.LoadedSessions += o.LoadedSessions
	u.Runtimes += o.Runtimes
	u.Turns += o.Turns
	u.Participants += o.Participants
	u.Callbacks += o.Callbacks
	u.JournalBytes += o.JournalBytes
	return u
}

// Uses are uses by tenant.
type Uses map[string]Use

// Add adds the uses of others.
func (u Uses) Add(others Uses) {
	for tenant, use := range others {
		u[tenant] = u[tenant].Plus(use)
	}
}

// Sum returns the use of all tenants together.
func (u Uses) Sum() (all Use) {
	for _, use := range u {
		all = all.Plus(use)
	}
	return all
}
