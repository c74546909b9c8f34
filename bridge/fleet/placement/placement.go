// Package placement decides which runtime a session is loaded in: the first runtime of the session's profile with
// room. It only counts; it does not start or end processes.
//
// Table.mu guards everything. The package starts no goroutines.
package placement

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
)

// Default values of Config.
const (
	// DefaultMaxSessions is the limit of loaded sessions for a runtime. Above it the CLI's turns cost noticeably
	// more.
	DefaultMaxSessions = 100
	// DefaultMaxRuntimes is the limit of runtimes.
	DefaultMaxRuntimes = 32
	// DefaultIdle is how long a runtime may be unused before it is ended.
	DefaultIdle = 5 * time.Minute
)

// Config configures a Table. Zero values mean the defaults.
type Config struct {
	// MaxSessions bounds the sessions of one runtime. Further sessions get another runtime of the same profile.
	MaxSessions int
	// MaxRuntimes bounds the runtimes. Further ones are refused with LIMIT_EXCEEDED.
	MaxRuntimes int
	// Idle is how long a runtime may have no session before Unused returns it.
	Idle time.Duration
}

func (c Config) withDefaults() Config {
	if c.MaxSessions <= 0 {
		c.MaxSessions = DefaultMaxSessions
	}
	if c.MaxRuntimes <= 0 {
		c.MaxRuntimes = DefaultMaxRuntimes
	}
	if c.Idle <= 0 {
		c.Idle = DefaultIdle
	}
	return c
}

// Table maps sessions to runtimes. It is safe for concurrent use.
type Table struct {
	now func() time.Time
	// first is the runtime that is never ended: the first one of the default profile.
	first string

	mu     sync.Mutex
	cfg    Config
	shards map[string][]*shard // by the profile's hash without its shard, in order
	places map[string]*shard   // by session
	count  int
	bounds func(tenant string) (own, all Bounds)
	starts quota.Rates
	spares map[string]int // by the profile's hash without its shard
}

// shard is one runtime of a profile.
type shard struct {
	profile  runtime.Profile
	sessions map[string]struct{}
	used     time.Time
	holds    int  // callers waiting for it to start
	draining bool // it gets no further session
}

// New returns a table. The first runtime of the profile keep is never ended. now is the clock.
func New(cfg Config, keep runtime.Profile, now func() time.Time) *Table {
	return &Table{
		cfg: cfg.withDefaults(), now: now, first: Key(keep),
		shards: map[string][]*shard{}, places: map[string]*shard{},
	}
}

// Bounds limit the runtimes of one tenant or of all tenants. Zero sets no limit.
type Bounds struct {
	// Sessions and Runtimes are limits of totals; StartsPerMinute limits new runtimes.
	Sessions, Runtimes, StartsPerMinute int
	// SessionsElsewhere and RuntimesElsewhere are at other servers, and count too. They do not prevent the first one
	// here: a session that has moved here could not be loaded then.
	SessionsElsewhere, RuntimesElsewhere int
}

// bound is a limit of a total, and how much of it is used elsewhere.
type bound struct{ limit, elsewhere int }

// reached reports whether there is no room beside n.
func (b bound) reached(n int) bool {
	return b.limit > 0 && (n >= b.limit || n > 0 && n+b.elsewhere >= b.limit)
}

// Bound sets the bounds of tenants. It must be called before the table is used.
func (t *Table) Bound(bounds func(tenant string) (own, all Bounds)) { t.bounds = bounds }

// roomFor checks one bound. The caller holds mu.
func (t *Table) roomFor(name, tenant string, of func(Bounds) bound, count func(*shard) int) error {
	if t.bounds == nil {
		return nil
	}
	own, all := t.bounds(tenant)
	mine, sum := 0, 0
	for _, alike := range t.shards {
		for _, s := range alike {
			n := count(s)
			if sum += n; s.profile.Tenant == tenant {
				mine += n
			}
		}
	}
	switch {
	case of(own).reached(mine):
		return quota.Exceeded(name, int64(of(own).limit), false, boundRetry)
	case of(all).reached(sum):
		return quota.Exceeded(name, int64(of(all).limit), true, boundRetry)
	}
	return nil
}

// boundRetry is the suggested time before a retry when a bound is reached.
const boundRetry = time.Second

// mayAdd checks the bounds of runtimes. The caller holds mu.
func (t *Table) mayAdd(tenant string) error {
	if t.bounds == nil {
		return nil
	}
	runtimes := func(b Bounds) bound { return bound{b.Runtimes, b.RuntimesElsewhere} }
	err := t.roomFor("runtimes", tenant, runtimes, func(*shard) int { return 1 })
	if err != nil {
		return err
	}
	own, all := t.bounds(tenant)
	perSecond := func(b Bounds) quota.Rate {
		return quota.Rate{PerSecond: float64(b.StartsPerMinute) / time.Minute.Seconds(), Burst: b.StartsPerMinute}
	}
	return t.starts.Do(tenant, "runtime_starts_per_minute", perSecond(own), perSecond(all), t.now())
}

// Config returns the configuration with defaults filled in.
func (t *Table) Config() Config {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cfg
}

// Reconfigure replaces the configuration. Existing runtimes and sessions above the new limits stay.
func (t *Table) Reconfigure(cfg Config) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cfg = cfg.withDefaults()
}

// Uses returns the runtimes and the sessions in them, by tenant.
func (t *Table) Uses() quota.Uses {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := quota.Uses{}
	for _, alike := range t.shards {
		for _, s := range alike {
			use := quota.Use{Runtimes: 1, LoadedSessions: len(s.sessions)}
			out[s.profile.Tenant] = out[s.profile.Tenant].Plus(use)
		}
	}
	return out
}

// Key returns a key that all runtimes of a profile share.
func Key(p runtime.Profile) string {
	p.Shard = 0
	return p.Hash()
}

// Place assigns a session to a runtime of the profile, and returns that runtime's profile. An existing assignment
// stays.
func (t *Table) Place(session string, p runtime.Profile) (runtime.Profile, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := Key(p)
	if s := t.places[session]; s != nil {
		if Key(s.profile) == key {
			s.used = t.now()
			return s.profile, nil
		}
		t.remove(session)
	}
	loaded := func(b Bounds) bound { return bound{b.Sessions, b.SessionsElsewhere} }
	err := t.roomFor("loaded_sessions", p.Tenant, loaded, func(s *shard) int { return len(s.sessions) })
	if err != nil {
		return p, err
	}
	s, err := t.roomIn(key, p)
	if err != nil {
		return p, err
	}
	s.sessions[session], t.places[session] = struct{}{}, s
	return s.profile, nil
}

// PlaceAmong is like Place, but considers only running runtimes, given by the hashes of their profiles. ok is false
// if none of them has the profile and room.
func (t *Table) PlaceAmong(session string, p runtime.Profile, running map[string]bool) (_ runtime.Profile, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := Key(p)
	if s := t.places[session]; s != nil && Key(s.profile) == key {
		return s.profile, running[s.profile.Hash()]
	}
	for _, s := range t.shards[key] {
		if t.hasRoom(s) && running[s.profile.Hash()] {
			t.remove(session)
			s.sessions[session], t.places[session], s.used = struct{}{}, s, t.now()
			return s.profile, true
		}
	}
	return p, false
}

// Discard removes the runtime with exactly this profile and all assignments to it: it no longer counts, and later
// sessions are assigned elsewhere.
func (t *Table) Discard(p runtime.Profile) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := Key(p)
	t.shards[key] = slices.DeleteFunc(t.shards[key], func(s *shard) bool {
		if s.profile.Shard != p.Shard {
			return false
		}
		for session := range s.sessions {
			delete(t.places, session)
		}
		t.count--
		return true
	})
	if len(t.shards[key]) == 0 {
		delete(t.shards, key)
	}
}

// Use returns the profile of the first runtime of a profile, for calls that need no loaded session.
func (t *Table) Use(p runtime.Profile) (runtime.Profile, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := Key(p)
	for _, s := range t.shards[key] {
		s.used = t.now()
		return s.profile, nil
	}
	s, err := t.add(key, p)
	if err != nil {
		return p, err
	}
	return s.profile, nil
}

// Spares returns the profiles of the first n runtimes of a profile that have room for a session. It adds those that are
// missing, as far as the limits permit.
func (t *Table) Spares(p runtime.Profile, n int) (spares []runtime.Profile, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := Key(p)
	for _, s := range t.shards[key] {
		if len(spares) < n && t.hasRoom(s) {
			spares = append(spares, s.profile)
		}
	}
	for len(spares) < n {
		s, err := t.add(key, p)
		if err != nil {
			return spares, err
		}
		spares = append(spares, s.profile)
	}
	return spares, nil
}

// KeepSpares replaces the number of runtimes with room, by Key, that Unused leaves running.
func (t *Table) KeepSpares(spares map[string]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spares = spares
}

// Drain sets whether the runtime with exactly this profile is draining: a draining runtime gets no further session, and
// does not count as a spare.
func (t *Table) Drain(p runtime.Profile, draining bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.shards[Key(p)] {
		if s.profile.Shard == p.Shard {
			s.draining = draining
		}
	}
}

// hasRoom reports whether the runtime takes another session. The caller holds mu.
func (t *Table) hasRoom(s *shard) bool { return !s.draining && len(s.sessions) < t.cfg.MaxSessions }

// roomIn returns the first runtime of a profile with room. The caller holds mu.
func (t *Table) roomIn(key string, p runtime.Profile) (*shard, error) {
	for _, s := range t.shards[key] {
		if t.hasRoom(s) {
			s.used = t.now()
			return s, nil
		}
	}
	return t.add(key, p)
}

// add adds a runtime of a profile with the lowest free number. The caller holds mu.
func (t *Table) add(key string, p runtime.Profile) (*shard, error) {
	if t.count >= t.cfg.MaxRuntimes {
		return nil, fault.New(fault.LimitExceeded, "all %d permitted runtimes are in use", t.count).
			With("limit", "max_runtimes")
	}
	if err := t.mayAdd(p.Tenant); err != nil {
		return nil, err
	}
	alike := t.shards[key]
	p.Shard = 0
	for i, s := range alike {
		if s.profile.Shard != i {
			break
		}
		p.Shard = i + 1
	}
	s := &shard{profile: p, sessions: map[string]struct{}{}, used: t.now()}
	t.shards[key] = slices.Insert(slices.Clip(alike), p.Shard, s)
	t.count++
	return s, nil
}

// Hold prevents a runtime from counting as unused until release is called: its start may take longer than the idle
// time.
func (t *Table) Hold(p runtime.Profile) (release func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.shards[Key(p)] {
		if s.profile.Shard == p.Shard {
			s.holds++
			return func() {
				t.mu.Lock()
				defer t.mu.Unlock()
				s.holds--
				s.used = t.now()
			}
		}
	}
	return func() {}
}

// Remove ends a session's assignment if it is to the runtime with this profile.
func (t *Table) Remove(session string, p runtime.Profile) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.places[session]; s != nil && s.profile.Hash() == p.Hash() {
		t.remove(session)
	}
}

// Forget ends a session's assignment to any runtime.
func (t *Table) Forget(session string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(session)
}

func (t *Table) remove(session string) {
	if s := t.places[session]; s != nil {
		delete(s.sessions, session)
		delete(t.places, session)
		s.used = t.now()
	}
}

// Unused removes the runtimes that have had no session for the idle time, and returns their profiles; the caller ends
// them. loaded reports whether a session is loaded in a runtime, so that an unused assignment does not count forever.
// It is called without the table's lock: it may take a lock under which other goroutines end their assignments.
func (t *Table) Unused(loaded func(session string, p runtime.Profile) bool) (idle []runtime.Profile) {
	untaken := map[*shard][]string{}
	for s, sessions := range t.idleCandidates() {
		for _, session := range sessions {
			if !loaded(session, s.profile) {
				untaken[s] = append(untaken[s], session)
			}
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	for s, sessions := range untaken {
		if t.idle(s, now) { // it may have been used meanwhile
			t.free(s, sessions)
		}
	}
	for key, alike := range t.shards {
		spare := t.roomy(alike) - t.spares[key]
		t.shards[key] = slices.DeleteFunc(alike, func(s *shard) bool {
			if !t.idle(s, now) || len(s.sessions) > 0 || key == t.first && s.profile.Shard == 0 || spare <= 0 {
				return false
			}
			spare--
			idle = append(idle, s.profile)
			t.count--
			return true
		})
		if len(t.shards[key]) == 0 {
			delete(t.shards, key)
		}
	}
	return idle
}

// free ends the assignments of sessions to a runtime. The caller holds mu.
func (t *Table) free(s *shard, sessions []string) {
	for _, session := range sessions {
		if _, ok := s.sessions[session]; ok {
			delete(s.sessions, session)
			delete(t.places, session)
		}
	}
}

// roomy counts the runtimes with room for a session. The caller holds mu.
func (t *Table) roomy(shards []*shard) (n int) {
	for _, s := range shards {
		if t.hasRoom(s) {
			n++
		}
	}
	return n
}

// idle reports whether the runtime was unused for the idle time. The caller holds mu.
func (t *Table) idle(s *shard, now time.Time) bool {
	return s.holds == 0 && now.Sub(s.used) >= t.cfg.Idle
}

// idleCandidates returns the unused runtimes with their sessions.
func (t *Table) idleCandidates() map[*shard][]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, out := t.now(), map[*shard][]string{}
	for _, alike := range t.shards {
		for _, s := range alike {
			if t.idle(s, now) {
				out[s] = slices.Collect(maps.Keys(s.sessions))
			}
		}
	}
	return out
}

// Profiles returns the profile of one runtime for each profile that has any.
func (t *Table) Profiles() []runtime.Profile {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]runtime.Profile, 0, len(t.shards))
	for _, alike := range t.shards {
		out = append(out, alike[0].profile)
	}
	return out
}
