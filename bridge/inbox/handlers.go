package inbox

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
)

// maxLingering bounds the handlers of a tenant whose streams have ended. If there are more, the oldest end.
const maxLingering = 64

// scope is the sessions that a caller asks for.
type scope struct {
	tenant string // the caller's
	owner  string // by its public name; empty for all
	labels map[string]string
}

// includes reports whether a session with these labels is in the scope and the tenant may make calls of the class
// in it.
func (c scope) includes(e *sessions.Entry, labels map[string]string, class caller.Class) bool {
	s := e.Session
	return (s.Tenant() == c.tenant || e.Shares.Class(c.tenant) >= class) &&
		(c.owner == "" || c.owner == tenancy.PublicTenant(s.Tenant())) && sessions.HasLabels(labels, c.labels)
}

// handler is a caller that handles callbacks in the sessions of its scope. Its fields except timer do not change.
type handler struct {
	scope
	methods []string // sorted
	timer   *time.Timer
}

// covers reports whether the handler handles callbacks in a session with these labels.
func (h *handler) covers(e *sessions.Entry, labels map[string]string) bool {
	return h.includes(e, labels, caller.Drive)
}

// same reports whether two handlers handle the same callbacks in the same sessions.
func (h *handler) same(o *handler) bool {
	return h.tenant == o.tenant && h.owner == o.owner && maps.Equal(h.labels, o.labels) &&
		slices.Equal(h.methods, o.methods)
}

// handlers are the handlers of all tenants. They are safe for concurrent use: mu guards list, and is not held while a
// handler's sessions are looked at.
type handlers struct {
	mu   sync.Mutex
	list []*handler // those whose streams have ended are in the order of these ends
}

// add adds a handler. It replaces the same one of an earlier stream.
func (hs *handlers) add(h *handler) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	hs.drop(func(o *handler) bool { return o.timer != nil && o.same(h) })
	hs.list = append(hs.list, h)
}

// linger has a handler end after its grace time: ended is called then. It ends the oldest lingering handlers of the
// tenant if there are too many, and returns them.
func (hs *handlers) linger(h *handler, grace time.Duration, ended func()) (displaced []*handler) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	h.timer = time.AfterFunc(grace, func() {
		if hs.remove(h) {
			ended()
		}
	})
	hs.list = append(slices.DeleteFunc(hs.list, func(o *handler) bool { return o == h }), h)
	lingers := func(o *handler) bool { return o.timer != nil && o.tenant == h.tenant }
	excess := -maxLingering
	for _, o := range hs.list {
		if lingers(o) {
			excess++
		}
	}
	return hs.drop(func(o *handler) bool {
		if excess <= 0 || !lingers(o) {
			return false
		}
		excess--
		return true
	})
}

// remove removes a handler, and reports whether it was there.
func (hs *handlers) remove(h *handler) bool {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return len(hs.drop(func(o *handler) bool { return o == h })) > 0
}

// drop removes handlers and stops their timers. The caller holds mu.
func (hs *handlers) drop(which func(*handler) bool) (dropped []*handler) {
	hs.list = slices.DeleteFunc(hs.list, func(h *handler) bool {
		if !which(h) {
			return false
		}
		if h.timer != nil {
			h.timer.Stop()
		}
		dropped = append(dropped, h)
		return true
	})
	return dropped
}

// all returns the handlers. The list is the caller's.
func (hs *handlers) all() []*handler {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return slices.Clone(hs.list)
}

// watched returns the methods that are handled in a session with these labels.
func (hs *handlers) watched(e *sessions.Entry, labels map[string]string) (methods []string) {
	for _, h := range hs.all() {
		if !h.covers(e, labels) {
			continue
		}
		for _, m := range h.methods {
			if tenancy.SeesMethod(e.Session, h.tenant, m) && !slices.Contains(methods, m) {
				methods = append(methods, m)
			}
		}
	}
	return methods
}
