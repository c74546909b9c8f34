package bridge

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/placement"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// inFlight are the gauges of what is about to be: what is, is counted where it is.
type inFlight struct {
	sessions, turns, participants quota.Gauge
	// rooms are counts of the callbacks that wait, by tenant; callbacks is that of all.
	rooms     sync.Map
	callbacks atomic.Int64
}

// limits returns what a tenant may use.
func (b *Bridge) limits(tenant string) quota.Limits {
	t, _ := b.tenant(tenant)
	return t.Limits
}

// overall returns what everybody together may use.
func (b *Bridge) overall() quota.Limits {
	if b.cfg.Limits == nil {
		return quota.Limits{}
	}
	return b.cfg.Limits()
}

// admitOne takes one more of what count says each session has, unless the tenant or
// everybody has too much of it. Release is to be called as soon as the sessions count it.
func (b *Bridge) admitOne(g *quota.Gauge, tenant string, l quota.Limit, count func(*session.Session) int) (release func(), err error) {
	if l.Tenant <= 0 && l.Overall <= 0 {
		return func() {}, nil
	}
	own, all := 0, 0
	for _, s := range b.sessions.All() {
		n := count(s)
		if all += n; s.Tenant() == tenant {
			own += n
		}
	}
	return g.TakeBeside(tenant, l, own, all)
}

// admitSession takes room for a session.
func (b *Bridge) admitSession(tenant string) (release func(), err error) {
	l := quota.Limit{Name: "sessions", Tenant: b.limits(tenant).Sessions, Overall: b.overall().Sessions}
	return b.admitOne(&b.flight.sessions, tenant, l, func(s *session.Session) int {
		if state := s.State(); state == session.Disconnected || state == session.Deleted || state == session.Creating {
			return 0 // one that is being made counts as such
		}
		return 1
	})
}

// admitTurn takes room for a turn of a session, which may have one already: what is sent
// then waits for it. The journal has to have room too.
func (b *Bridge) admitTurn(s *session.Session) (release func(), err error) {
	tenant := s.Tenant()
	own, all := b.limits(tenant), b.overall()
	if err := b.checkJournals(tenant, own.JournalBytes, all.JournalBytes); err != nil {
		return nil, err
	}
	l := quota.Limit{Name: "turns", Tenant: own.Turns, Overall: all.Turns}
	if s.TurnRunning() {
		return func() {}, nil
	}
	return b.admitOne(&b.flight.turns, tenant, l, func(s *session.Session) int {
		if s.TurnRunning() {
			return 1
		}
		return 0
	})
}

// admitParticipant takes room for a participant.
func (b *Bridge) admitParticipant(tenant string) (release func(), err error) {
	l := quota.Limit{Name: "participants", Tenant: b.limits(tenant).Participants, Overall: b.overall().Participants}
	return b.admitOne(&b.flight.participants, tenant, l, (*session.Session).Company)
}

// trimmedEvery is how often journals are trimmed to what is to be kept of them, before which
// there is no more room than now.
const trimmedEvery = time.Minute

// checkJournals refuses what would add to journals that have too much.
func (b *Bridge) checkJournals(tenant string, own, all int64) error {
	if own <= 0 && all <= 0 {
		return nil
	}
	var mine, sum int64
	for _, s := range b.all() {
		n := s.Journal().Stored()
		if sum += n; s.Tenant() == tenant {
			mine += n
		}
	}
	switch {
	case own > 0 && mine >= own:
		return quota.Exceeded("journal_bytes", own, false, trimmedEvery)
	case all > 0 && sum >= all:
		return quota.Exceeded("journal_bytes", all, true, trimmedEvery)
	}
	return nil
}

// maxPrompt is the longest prompt of a tenant.
func (b *Bridge) maxPrompt(tenant string) int {
	most := b.tuned.Load().MaxPromptBytes
	for _, l := range []int{b.limits(tenant).PromptBytes, b.overall().PromptBytes} {
		if l > 0 {
			most = min(most, l)
		}
	}
	return most
}

// checkPrompt refuses a prompt's part that is too long: for the tenant by its limits, or for
// anybody.
func (b *Bridge) checkPrompt(tenant string, size int, at string) error {
	own, all, most := b.limits(tenant).PromptBytes, b.overall().PromptBytes, b.tuned.Load().MaxPromptBytes
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

// bounds are those of the runtimes of a tenant.
func (b *Bridge) bounds(tenant string) (own, all placement.Bounds) {
	of := func(l quota.Limits) placement.Bounds {
		return placement.Bounds{Sessions: l.LoadedSessions, Runtimes: l.Runtimes, StartsPerMinute: l.RuntimeStartsPerMinute}
	}
	return of(b.limits(tenant)), of(b.overall())
}

// maxRSS is how much memory a runtime of a tenant may have: the least of those that are
// limits.
func (b *Bridge) maxRSS(tenant string, configured int64) int64 {
	most := configured
	for _, l := range []int64{b.limits(tenant).RuntimeMemoryBytes, b.overall().RuntimeMemoryBytes} {
		if l > 0 && (most <= 0 || l < most) {
			most = l
		}
	}
	return most
}

// room is where the callbacks of a tenant's sessions wait for answers.
type room struct {
	b      *Bridge
	tenant string
	used   *atomic.Int64
}

// Take implements callback.Room. It runs on a connection's reader, and does not wait.
func (r room) Take() bool {
	own, all := r.used.Add(1), r.b.flight.callbacks.Add(1)
	limit, overall := int64(r.b.limits(r.tenant).PendingCallbacks), int64(r.b.overall().PendingCallbacks)
	if limit > 0 && own > limit || overall > 0 && all > overall {
		r.Give()
		return false
	}
	return true
}

// Give implements callback.Room.
func (r room) Give() {
	r.used.Add(-1)
	r.b.flight.callbacks.Add(-1)
}

// roomOf returns the room of a tenant. The caller holds mu.
func (b *Bridge) roomOf(tenant string) room {
	used, _ := b.flight.rooms.LoadOrStore(tenant, new(atomic.Int64))
	return room{b: b, tenant: tenant, used: used.(*atomic.Int64)}
}

// rememberedQuota returns what may be remembered for a tenant, and for all tenants together.
// A server without a limit for its host's owner has one for all together alone.
func (b *Bridge) rememberedQuota(tenant string) (own, all idempotency.Quota) {
	of := func(l quota.Limits, requests int, bytes int64) idempotency.Quota {
		return idempotency.Quota{Requests: cmp.Or(l.RememberedRequests, requests), Bytes: cmp.Or(l.RememberedBytes, bytes)}
	}
	all = of(b.overall(), idempotency.DefaultTotalRequests, idempotency.DefaultTotalBytes)
	if b.cfg.Tenant == nil {
		return of(b.limits(tenant), all.Requests, all.Bytes), all
	}
	return of(b.limits(tenant), idempotency.DefaultRequests, idempotency.DefaultBytes), all
}
