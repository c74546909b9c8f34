package runtime

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// SupervisorConfig says how to keep runtimes.
type SupervisorConfig struct {
	// Start starts a runtime; usually Start with the caller's Config.
	Start func(ctx context.Context, p Profile) (*Runtime, error)
	// OnUp, if set, is told of each new runtime before anybody gets it.
	OnUp func(r *Runtime)
	// OnDown, if set, is told of the end of each runtime. For one profile,
	// calls of OnUp and OnDown follow one another; they must not call Get for
	// that profile.
	OnDown func(d Down)
	// Backoff spaces restarts; Breaker ends them.
	Backoff Backoff
	Breaker Breaker
	// Logger gets what the operator should know. Nil discards it.
	Logger *slog.Logger
}

// Down is the end of a runtime.
type Down struct {
	// Runtime is the one that ended.
	Runtime *Runtime
	// Cause is its Err.
	Cause error
	// Restart says that a successor will be started without being asked for.
	Restart bool
}

// Status is the state of one profile's runtime.
type Status struct {
	// Profile is whose runtime it is.
	Profile Profile
	// State is what it is doing.
	State State
	// Runtime is the running one, nil in every state but StateReady.
	Runtime *Runtime
	// Failures counts the quick deaths and failed starts in a row.
	Failures int
	// LastError is why it is not ready, nil if it is or has never failed.
	LastError error
	// RetryAt is when the next start may happen, in StateBackoff and StateBroken.
	RetryAt time.Time
}

// State is what a supervised runtime is doing.
type State string

// The states.
const (
	// StateStarting: being started.
	StateStarting State = "starting"
	// StateReady: running.
	StateReady State = "ready"
	// StateStopping: of no more use, but not over yet.
	StateStopping State = "stopping"
	// StateBackoff: died or failed to start, will be started again by itself.
	StateBackoff State = "backoff"
	// StateBroken: died too often in a row; Get fails until RetryAt.
	StateBroken State = "broken"
)

// Supervisor keeps one runtime for each profile in use. It starts them when they
// are first asked for, and again when they die.
type Supervisor struct {
	cfg  SupervisorConfig
	ctx  context.Context
	stop context.CancelCauseFunc

	mu      sync.Mutex
	keepers map[string]*keeper
	// released are the runtimes that go on although nobody is given them any more.
	released map[*Runtime]struct{}
	tasks    sync.WaitGroup
	closed   bool
}

// NewSupervisor returns a Supervisor without runtimes. Stop ends it.
func NewSupervisor(cfg SupervisorConfig) *Supervisor {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.OnUp == nil {
		cfg.OnUp = func(*Runtime) {}
	}
	if cfg.OnDown == nil {
		cfg.OnDown = func(Down) {}
	}
	cfg.Backoff, cfg.Breaker = cfg.Backoff.withDefaults(), cfg.Breaker.withDefaults()
	ctx, stop := context.WithCancelCause(context.Background())
	return &Supervisor{cfg: cfg, ctx: ctx, stop: stop, keepers: map[string]*keeper{}, released: map[*Runtime]struct{}{}}
}

// Get returns the profile's runtime, starting it if there is none, and waiting
// if it is just being started. A failed start is reported to everybody who
// waits for it. ctx bounds the wait, not the start, which others may share.
func (s *Supervisor) Get(ctx context.Context, p Profile) (*Runtime, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	attempt, err := s.attempt(p)
	if err != nil {
		return nil, err
	}
	select {
	case <-attempt.settled:
		return attempt.runtime, attempt.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// attempt returns the profile's current attempt at having a runtime.
func (s *Supervisor) attempt(p Profile) (*attempt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errStopping
	}
	hash := p.Hash()
	k := s.keepers[hash]
	if k == nil {
		k = &keeper{s: s, profile: p, pauses: s.cfg.Backoff.pauses()}
		s.keepers[hash] = k
	}
	if err := k.broken(); err != nil {
		return nil, err
	}
	if !k.running {
		k.running = true
		k.begin()
		s.tasks.Go(k.run)
	}
	if r := k.current.runtime; k.state == StateReady && (isDone(r.lost) || isDone(r.conn.Done())) {
		k.next(StateStopping) // its keeper is about to see that too
	}
	if !isDone(k.current.settled) {
		k.demand = true
	}
	return k.current, nil
}

// errStopping is the answer of a supervisor that is being stopped.
var errStopping = fault.New(fault.RuntimeStopping, "the bridge is stopping its runtimes")

// errRetired is the answer to those who waited for a start that Retire cancelled.
var errRetired = fault.New(fault.RuntimeStopping, "the runtime was retired")

// List returns the state of every profile that has a runtime, is to have one, or
// is broken.
func (s *Supervisor) List() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Status, 0, len(s.keepers))
	for _, k := range s.keepers {
		list = append(list, k.status())
	}
	return list
}

// Down returns when the next runtime of a profile may be started, if the last one ended with an
// error and is not replaced yet; else ok is false.
func (s *Supervisor) Down(p Profile) (retry time.Time, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keepers[p.Hash()]
	if k == nil {
		return time.Time{}, false
	}
	status := k.status()
	if status.Runtime != nil || status.LastError == nil {
		return time.Time{}, false
	}
	return status.RetryAt, true
}

// Retire stops the profile's runtime; the next Get starts another. It returns
// when it is over, by force when ctx ends.
func (s *Supervisor) Retire(ctx context.Context, p Profile) error {
	s.mu.Lock()
	k := s.keepers[p.Hash()]
	if k == nil || !k.running {
		delete(s.keepers, p.Hash())
		s.mu.Unlock()
		return nil
	}
	if k.state != StateReady {
		k.cancel(errRetired)
	}
	current := k.current
	s.mu.Unlock()
	stopAttempt(ctx, current)
	return nil
}

// Release lets go of a runtime and reports whether it was its profile's: it goes on until
// somebody stops it, but the next Get starts another. Its end is told to OnDown like
// any other's, if out of turn.
func (s *Supervisor) Release(r *Runtime) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.keepers[r.Profile().Hash()]
	if k == nil || s.closed || k.state != StateReady || k.current.runtime != r {
		return false
	}
	s.released[r] = struct{}{}
	k.next(StateStopping)
	close(k.released)
	return true
}

// outliveReleased waits for the end of a runtime that was let go.
func (s *Supervisor) outliveReleased(r *Runtime) {
	<-r.Done()
	s.mu.Lock()
	delete(s.released, r)
	s.mu.Unlock()
	s.cfg.OnDown(Down{Runtime: r, Cause: r.Err()})
}

// Stop ends all runtimes in order, by force when ctx ends. Nothing is started
// any more. It returns when everything is over.
func (s *Supervisor) Stop(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	s.stop(errStopping)
	var all sync.WaitGroup
	for _, k := range s.keepers {
		if current := k.current; k.running {
			all.Go(func() { stopAttempt(ctx, current) })
		}
	}
	for r := range s.released {
		all.Go(func() { _ = r.Stop(ctx) }) // never fails
	}
	s.mu.Unlock()
	all.Wait()
	s.tasks.Wait()
	return nil
}

// stopAttempt stops the runtime of an attempt, if it comes to one. An attempt
// that is not settled yet has been cancelled and soon will be.
func stopAttempt(ctx context.Context, a *attempt) {
	<-a.settled
	if a.runtime != nil {
		_ = a.runtime.Stop(ctx) // never fails
	}
}

// attempt is one try at having a runtime. Its fields are set before settled
// closes.
type attempt struct {
	settled chan struct{}
	runtime *Runtime
	err     error
}

func (a *attempt) settle(r *Runtime, err error) {
	a.runtime, a.err = r, err
	close(a.settled)
}

// Backoff spaces restarts: the first comes at once after First, each further one
// in a row twice as late, up to Max.
type Backoff struct {
	First time.Duration
	Max   time.Duration
}

func (b Backoff) withDefaults() Backoff {
	return Backoff{First: cmp.Or(b.First, 200*time.Millisecond), Max: cmp.Or(b.Max, 30*time.Second)}
}

// pauses are the pauses between restarts in a row. They are exact: one process restarts its
// own child, so there is no crowd to spread.
func (b Backoff) pauses() backoff.ExponentialBackOff {
	return backoff.ExponentialBackOff{InitialInterval: min(b.First, b.Max), Multiplier: 2, MaxInterval: b.Max}
}

// Breaker ends restarts after Limit failures in a row: failed starts, and
// runtimes that lived less than Stable. After Cooldown one more try is made for
// whoever asks; if that fails too, the next Cooldown begins.
type Breaker struct {
	Limit    int
	Stable   time.Duration
	Cooldown time.Duration
}

func (b Breaker) withDefaults() Breaker {
	return Breaker{
		Limit:    cmp.Or(b.Limit, 5),
		Stable:   cmp.Or(b.Stable, time.Minute),
		Cooldown: cmp.Or(b.Cooldown, time.Minute),
	}
}

// lasting tells whether trying again by ourselves is pointless: somebody has to
// mend something first.
func lasting(err error) bool {
	var f *fault.Error
	if !errors.As(err, &f) {
		return false
	}
	switch f.Reason {
	case fault.CLINotFound, fault.CLIInstallFailed, fault.CLIUnsupported, fault.RuntimeAuthFailed, fault.InvalidField:
		return true
	}
	return false
}
