// Package admission decides whether there is room for what a caller wants: a session, a turn, a
// participant, a prompt, a callback. It bounds each tenant and all tenants together.
//
// The gauges have a lock each, and callbacks are counted by atomics: nothing here holds a lock
// while it looks at a session. The package starts no goroutine.
package admission

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet/placement"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
)

// Config says what a controller bounds.
type Config struct {
	Store *sessions.Store
	// Tenants has the limits of tenants. Overall returns the limits of all tenants together.
	Tenants *tenancy.Tenants
	Overall func() quota.Limits
	// MaxPromptBytes returns the size of the longest prompt that the bridge accepts.
	MaxPromptBytes func() int
	// Elsewhere returns what a tenant, and all tenants together, use at other servers for which the limits hold too.
	// It must not wait. Nil: there are none.
	Elsewhere func(tenant string) (own, all quota.Use)
}

// Controller admits what callers want. Its gauges count what is about to be: what is, is counted
// where it is. Call New to make one. It is safe for concurrent use.
type Controller struct {
	cfg                           Config
	sessions, turns, participants quota.Gauge
	// rooms are counts of the callbacks that wait, by tenant; callbacks is that of all.
	rooms     sync.Map
	callbacks atomic.Int64
}

// New returns a controller.
func New(c Config) *Controller {
	if c.Elsewhere == nil {
		c.Elsewhere = func(string) (own, all quota.Use) { return own, all }
	}
	return &Controller{cfg: c}
}

// resource is what sessions count, here and elsewhere.
type resource struct {
	count     func(*session.Session) int
	elsewhere func(quota.Use) int
}

// The resources that are admitted one at a time.
var (
	openSessions = resource{func(s *session.Session) int {
		switch s.Loader().State() {
		case session.Disconnected, session.Deleted, session.Creating: // one that is being made counts as such
			return 0
		}
		return 1
	}, func(u quota.Use) int { return u.Sessions }}
	runningTurns = resource{func(s *session.Session) int {
		if s.Turns().Running() {
			return 1
		}
		return 0
	}, func(u quota.Use) int { return u.Turns }}
	attached = resource{
		func(s *session.Session) int { return s.Participants().Count() },
		func(u quota.Use) int { return u.Participants },
	}
)

// Uses returns what each tenant uses at this server, its runtimes apart.
func (c *Controller) Uses() quota.Uses {
	out := quota.Uses{}
	for _, s := range c.cfg.Store.Sessions() {
		use := quota.Use{
			Sessions: openSessions.count(s), Turns: runningTurns.count(s), Participants: attached.count(s),
			JournalBytes: journalBytes(s),
		}
		out[s.Tenant()] = out[s.Tenant()].Plus(use)
	}
	for tenant, n := range c.cfg.Store.EvictedBytes() {
		out[tenant] = out[tenant].Plus(quota.Use{JournalBytes: n})
	}
	c.rooms.Range(func(tenant, used any) bool {
		if n := used.(*atomic.Int64).Load(); n > 0 {
			out[tenant.(string)] = out[tenant.(string)].Plus(quota.Use{Callbacks: int(n)})
		}
		return true
	})
	return out
}

// admitOne admits one more of a resource, unless the tenant or all tenants together are at their limit. The caller
// calls release as soon as the sessions count the new one.
func (c *Controller) admitOne(
	g *quota.Gauge, tenant string, l quota.Limit, r resource,
) (release func(), err error) {
	if l.Tenant <= 0 && l.Overall <= 0 {
		return func() {}, nil
	}
	others, othersOfAll := c.cfg.Elsewhere(tenant)
	own, all := r.elsewhere(others), r.elsewhere(othersOfAll)
	for _, s := range c.cfg.Store.Sessions() {
		n := r.count(s)
		if all += n; s.Tenant() == tenant {
			own += n
		}
	}
	return g.TakeBeside(tenant, l, own, all)
}

// Session takes room for a session.
func (c *Controller) Session(tenant string) (release func(), err error) {
	l := quota.Limit{Name: "sessions", Tenant: c.cfg.Tenants.Limits(tenant).Sessions, Overall: c.cfg.Overall().Sessions}
	return c.admitOne(&c.sessions, tenant, l, openSessions)
}

// Turn takes room for a turn of a session, which may have one already: what is sent
// then waits for it. The journal has to have room too.
func (c *Controller) Turn(s *session.Session) (release func(), err error) {
	tenant := s.Tenant()
	own, all := c.cfg.Tenants.Limits(tenant), c.cfg.Overall()
	if err := c.CheckJournals(tenant, 1); err != nil {
		return nil, err
	}
	l := quota.Limit{Name: "turns", Tenant: own.Turns, Overall: all.Turns}
	if s.Turns().Running() {
		return func() {}, nil
	}
	return c.admitOne(&c.turns, tenant, l, runningTurns)
}

// Participant takes room for a participant.
func (c *Controller) Participant(tenant string) (release func(), err error) {
	l := quota.Limit{Name: "participants", Tenant: c.cfg.Tenants.Limits(tenant).Participants, Overall: c.cfg.Overall().Participants}
	return c.admitOne(&c.participants, tenant, l, attached)
}

// trimmedEvery is the interval at which journals are trimmed to their retention. A caller whose tenant is at its
// limit has no more space before the next trim.
const trimmedEvery = time.Minute

// CheckJournals returns LIMIT_EXCEEDED if a tenant's journals, or all journals, cannot take that many more bytes.
func (c *Controller) CheckJournals(tenant string, more int64) error {
	own, all := c.cfg.Tenants.Limits(tenant).JournalBytes, c.cfg.Overall().JournalBytes
	if own <= 0 && all <= 0 {
		return nil
	}
	others, othersOfAll := c.cfg.Elsewhere(tenant)
	mine, sum := others.JournalBytes, othersOfAll.JournalBytes
	for of, n := range c.cfg.Store.EvictedBytes() {
		if sum += n; of == tenant {
			mine += n
		}
	}
	for _, s := range c.cfg.Store.Sessions() {
		n := journalBytes(s)
		if sum += n; s.Tenant() == tenant {
			mine += n
		}
	}
	switch {
	case own > 0 && mine+more > own:
		return quota.Exceeded("journal_bytes", own, false, trimmedEvery)
	case all > 0 && sum+more > all:
		return quota.Exceeded("journal_bytes", all, true, trimmedEvery)
	}
	return nil
}

// journalBytes returns the bytes of a session's stored events. They count also while the session is disconnected, and
// while it is being made.
func journalBytes(s *session.Session) int64 {
	if s.Loader().State() == session.Deleted {
		return 0
	}
	return s.Journal().Stored()
}

// MaxPrompt is the longest prompt of a tenant.
func (c *Controller) MaxPrompt(tenant string) int {
	most := c.cfg.MaxPromptBytes()
	for _, l := range []int{c.cfg.Tenants.Limits(tenant).PromptBytes, c.cfg.Overall().PromptBytes} {
		if l > 0 {
			most = min(most, l)
		}
	}
	return most
}

// CheckPrompt rejects a part of a prompt above the limit of the tenant or of the server.
func (c *Controller) CheckPrompt(tenant string, size int, at string) error {
	own, all, most := c.cfg.Tenants.Limits(tenant).PromptBytes, c.cfg.Overall().PromptBytes, c.cfg.MaxPromptBytes()
	switch {
	case size > most:
		return fault.New(fault.PromptTooLarge, "the prompt has %d bytes, more than %d", size, most).WithField(at)
	case own > 0 && size > own:
		return quota.Exceeded("prompt_bytes", int64(own), false, 0)
	case all > 0 && size > all:
		return quota.Exceeded("prompt_bytes", int64(all), true, 0)
	}
	return nil
}

// Runtimes returns the bounds of the runtimes of a tenant, and of all tenants together.
func (c *Controller) Runtimes(tenant string) (own, all placement.Bounds) {
	of := func(l quota.Limits, elsewhere quota.Use) placement.Bounds {
		return placement.Bounds{
			Sessions: l.LoadedSessions, Runtimes: l.Runtimes, StartsPerMinute: l.RuntimeStartsPerMinute,
			SessionsElsewhere: elsewhere.LoadedSessions, RuntimesElsewhere: elsewhere.Runtimes,
		}
	}
	others, othersOfAll := c.cfg.Elsewhere(tenant)
	return of(c.cfg.Tenants.Limits(tenant), others), of(c.cfg.Overall(), othersOfAll)
}

// MaxRSS returns the memory limit of a tenant's runtime: the smallest limit that is set.
func (c *Controller) MaxRSS(tenant string, configured int64) int64 {
	most := configured
	for _, l := range []int64{c.cfg.Tenants.Limits(tenant).RuntimeMemoryBytes, c.cfg.Overall().RuntimeMemoryBytes} {
		if l > 0 && (most <= 0 || l < most) {
			most = l
		}
	}
	return most
}

// room is where the callbacks of a tenant's sessions wait for answers.
type room struct {
	c      *Controller
	tenant string
	used   *atomic.Int64
}

// Take implements callback.Room. It runs on a connection's reader, and does not wait.
func (r room) Take() bool {
	own, all := r.used.Add(1), r.c.callbacks.Add(1)
	limit, overall := int64(r.c.cfg.Tenants.Limits(r.tenant).PendingCallbacks), int64(r.c.cfg.Overall().PendingCallbacks)
	others, othersOfAll := r.c.cfg.Elsewhere(r.tenant)
	own, all = own+int64(others.Callbacks), all+int64(othersOfAll.Callbacks)
	if limit > 0 && own > limit || overall > 0 && all > overall {
		r.Give()
		return false
	}
	return true
}

// Give implements callback.Room.
func (r room) Give() {
	r.used.Add(-1)
	r.c.callbacks.Add(-1)
}

// Room returns the room of a tenant's callbacks.
func (c *Controller) Room(tenant string) callback.Room {
	used, _ := c.rooms.LoadOrStore(tenant, new(atomic.Int64))
	return room{c: c, tenant: tenant, used: used.(*atomic.Int64)}
}

// Remembered returns what may be remembered for a tenant, and for all tenants together.
// A server without a limit for its host's owner has one for all together alone.
func (c *Controller) Remembered(tenant string) (own, all idempotency.Quota) {
	of := func(l quota.Limits, requests int, bytes int64) idempotency.Quota {
		return idempotency.Quota{Requests: cmp.Or(l.RememberedRequests, requests), Bytes: cmp.Or(l.RememberedBytes, bytes)}
	}
	all = of(c.cfg.Overall(), idempotency.DefaultTotalRequests, idempotency.DefaultTotalBytes)
	if c.cfg.Tenants.Lookup == nil {
		return of(c.cfg.Tenants.Limits(tenant), all.Requests, all.Bytes), all
	}
	return of(c.cfg.Tenants.Limits(tenant), idempotency.DefaultRequests, idempotency.DefaultBytes), all
}
