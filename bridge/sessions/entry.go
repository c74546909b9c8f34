package sessions

import (
	"sync"
	"sync/atomic"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
)

// Entry is a session with the profile of its runtimes and its shares. It is safe for concurrent use.
type Entry struct {
	// Session must be set before the entry is shared, and not changed afterwards.
	Session *session.Session
	// Shares has the tenants that the session is shared with. It has its own lock.
	Shares tenancy.Shares
	// Sandboxed says that the session has been loaded in a sandbox. It is never reset.
	Sandboxed atomic.Bool

	mu      sync.Mutex
	profile runtime.Profile
	base    runtime.Profile
}

// NewEntry returns an entry without a session, whose profile is its tenant's own.
func NewEntry(own runtime.Profile) *Entry { return &Entry{profile: own, base: own} }

// Key returns the session's key.
func (e *Entry) Key() string { return e.Session.Key() }

// Profile returns the session's profile. base is the tenant's own profile at the time when the session's was made.
func (e *Entry) Profile() (profile, base runtime.Profile) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.profile, e.base
}

// SetProfile gives the session a profile that was made of base; undo restores the previous one.
func (e *Entry) SetProfile(profile, base runtime.Profile) (undo func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	oldProfile, oldBase := e.profile, e.base
	e.profile, e.base = profile, base
	return func() { e.SetProfile(oldProfile, oldBase) }
}
