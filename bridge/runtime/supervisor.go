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
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/progress"
)

// SupervisorConfig configures a Supervisor.
type SupervisorConfig struct {
	// Start starts a runtime; usually Start with the caller's Config.
	Start func(ctx context.Context, p Profile) (*Runtime, error)
	// OnUp, if set, is called for each new runtime before Get returns it.
	OnUp func(r *Runtime)
	// OnDown, if set, is called for the end of each runtime. The calls of OnUp and OnDown for one profile do not
	// overlap. They must not call Get for that profile.
	OnDown func(d Down)
	// Backoff sets the pauses between restarts, Breaker when restarts stop.
	Backoff Backoff
	Breaker Breaker
	// Logger receives messages for the operator. Nil discards them.
	Logger *slog.Logger
}

// Down describes the end of a runtime.
type Down struct {
	Runtime *Runtime
	// Cause is the runtime's Err.
	Cause error
	// Restart reports that the supervisor starts a successor at once.
	Restart bool
}

// Status is the state of one profile's runtime.
type Status struct {
	Profile Profile
	State   State
	// Runtime is the running one; nil in every state except StateReady.
	Runtime *Runtime
	// Failures counts successive early ends and failed starts.
	Failures int
	// LastError is why the runtime is not ready; nil if it is ready or has never failed.
	LastError error
	// RetryAt is the earliest time of the next start, in StateBackoff and StateBroken.
	RetryAt time.Time
}

// State is the state of a supervised runtime.
type State string

const (
	// StateStarting: the runtime is starting.
	StateStarting State = "starting"
	// StateReady: the runtime is running.
	StateReady State = "ready"
	// StateStopping: the runtime cannot be used any more and has not ended yet.
	StateStopping State = "stopping"
	// StateBackoff: the runtime ended or failed to start, and will be restarted.
	StateBackoff State = "backoff"
	// StateBroken: too many successive failures; Get fails until RetryAt.
	StateBroken State = "broken"
)

// Supervisor manages one runtime for each profile in use. It starts a runtime at the first Get and restarts it after
// failures. It is safe for concurrent use.
type Supervisor struct {
	cfg  SupervisorConfig
	ctx  context.Context
	stop context.CancelCauseFunc

	mu      sync.Mutex
	keepers map[string]*keeper
	// released are the runtimes that still run but that Get no longer returns.
	released map[*Runtime]struct{}
	tasks    sync.WaitGroup
	closed   bool
}

// NewSupervisor returns a Supervisor without runtimes. Stop ends them.
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

// Get returns the profile's runtime. It starts one if there is none, and waits for one that is starting. All waiting
// callers receive the error of a failed start. ctx bounds the wait, not the start, which callers share. While Get waits,
// it reports the stages of the start to the caller of progress.Watch.
func (s *Supervisor) Get(ctx context.Context, p Profile) (*Runtime, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	attempt, err := s.attempt(p)
	if err != nil {
		return nil, err
	}
	if err := attempt.wait(ctx); err != nil {
		return nil, err
	}
	return attempt.runtime, attempt.err
}

// attempt returns the profile's current attempt.
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
		k.next(StateStopping) // its keeper will detect that too
	}
	if !isDone(k.current.settled) {
		k.demand = true
	}
	return k.current, nil
}

// errStopping is the error of Get while the supervisor stops.
var errStopping = fault.New(fault.RuntimeStopping, "the bridge is stopping its runtimes")

// errRetired is the error for callers waiting for a start that Retire cancelled.
var errRetired = fault.New(fault.RuntimeStopping, "the runtime was retired")

// List returns the status of every profile with a runtime, a pending start, or StateBroken.
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

// Retire stops the profile's runtime; the next Get starts another. It returns when the runtime has ended; when ctx
// ends, it forces the end.
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

// Release detaches a runtime from its profile and reports whether it was the profile's runtime: it runs until it is
// stopped, but the next Get starts another. OnDown reports its end too, possibly during other calls.
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

// outliveReleased waits for the end of a released runtime.
func (s *Supervisor) outliveReleased(r *Runtime) {
	<-r.Done()
	s.mu.Lock()
	delete(s.released, r)
	s.mu.Unlock()
	s.cfg.OnDown(Down{Runtime: r, Cause: r.Err()})
}

// Stop ends all runtimes in order; when ctx ends, by force. No runtime is started afterwards. It returns when all
// have ended.
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

// stopAttempt stops the runtime of an attempt, if the attempt succeeds. An unsettled attempt was cancelled and will
// settle soon.
func stopAttempt(ctx context.Context, a *attempt) {
	<-a.settled
	if a.runtime != nil {
		_ = a.runtime.Stop(ctx) // never fails
	}
}

// attempt is one try to start a runtime. runtime and err are set before settled closes.
type attempt struct {
	settled chan struct{}
	runtime *Runtime
	err     error

	mu      sync.Mutex
	stage   progress.Stage
	entered chan struct{} // closed and replaced at each new stage
}

func newAttempt() *attempt {
	return &attempt{settled: make(chan struct{}), entered: make(chan struct{})}
}

// enter notes a stage of the start.
func (a *attempt) enter(stage progress.Stage) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stage = stage
	close(a.entered)
	a.entered = make(chan struct{})
}

// reached returns the current stage, and a channel that closes at the next one.
func (a *attempt) reached() (progress.Stage, <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.stage, a.entered
}

// wait returns when the attempt is settled, or with the cause of ctx. It reports the stages meanwhile.
func (a *attempt) wait(ctx context.Context) error {
	if isDone(a.settled) {
		return nil
	}
	for settled := false; !settled; {
		stage, entered := a.reached()
		progress.Report(ctx, stage)
		select {
		case <-entered:
		case <-a.settled:
			settled = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	stage, _ := a.reached() // the last one may have come right before the end
	progress.Report(ctx, stage)
	return nil
}

func (a *attempt) end(r *Runtime, err error) {
	a.runtime, a.err = r, err
	close(a.settled)
}

// Backoff sets the pauses between restarts: First before the first restart, and twice the previous pause before each
// further one, up to Max.
type Backoff struct {
	First time.Duration
	Max   time.Duration
}

func (b Backoff) withDefaults() Backoff {
	return Backoff{First: cmp.Or(b.First, 200*time.Millisecond), Max: cmp.Or(b.Max, 30*time.Second)}
}

// pauses returns the pauses between successive restarts. They have no jitter: one process restarts its own child, so
// there is no load to spread.
func (b Backoff) pauses() backoff.ExponentialBackOff {
	return backoff.ExponentialBackOff{InitialInterval: min(b.First, b.Max), Multiplier: 2, MaxInterval: b.Max}
}

// Breaker stops restarts after Limit successive failures: failed starts, and runtimes that lived less than Stable and
// completed no turn.
// After Cooldown the next Get makes one attempt; if it fails too, another Cooldown begins.
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

// lasting reports whether a retry is useless until a user has fixed the cause.
func lasting(err error) bool {
	var f *fault.Error
	if !errors.As(err, &f) {
		return false
	}
	switch f.Reason {
	case fault.CLINotFound, fault.CLIInstallFailed, fault.CLIUnsupported, fault.CLIUnverified, fault.RuntimeAuthFailed,
		fault.InvalidField:
		return true
	}
	return false
}
