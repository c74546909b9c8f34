package bridgetest

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// Process is a process of the fake CLI, with the profile that it was started for.
type Process struct {
	*fakecli.CLI
	Profile runtime.Profile
}

// processes are the processes of a bridge's fake CLI.
type processes interface {
	// supervise returns the supervisor of the runtimes.
	supervise(start bridge.Start) bridge.Runtimes
	started() []Process
	// stop ends the runtimes and the fake CLIs. A call that a CLI does not answer would hold the bridge's end.
	stop(ctx context.Context)
}

// single is one fake CLI for all runtimes. It implements bridge.Runtimes, with one runtime for all profiles.
type single struct {
	cli        *fakecli.CLI
	connection func(io.ReadWriteCloser) io.ReadWriteCloser
	start      bridge.Start

	mu sync.Mutex
	rt *runtime.Runtime
}

func newSingle(o *Options) *single {
	s := &single{cli: fakecli.New(fakecli.Options{Script: o.script(0)}), connection: o.connection}
	if s.connection == nil {
		s.connection = func(c io.ReadWriteCloser) io.ReadWriteCloser { return c }
	}
	return s
}

func (s *single) supervise(start bridge.Start) bridge.Runtimes {
	s.start = start
	return s
}

func (s *single) started() []Process { return []Process{{CLI: s.cli}} }

// Get implements bridge.Runtimes.
func (s *single) Get(ctx context.Context, p runtime.Profile) (*runtime.Runtime, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rt != nil {
		return s.rt, nil
	}
	run := func(context.Context, runtime.Spec) (io.ReadWriteCloser, error) {
		return s.connection(s.cli.Connect()), nil
	}
	rt, err := s.start(ctx, runtime.Config{Profile: p, Runner: runtime.InProcess(run)})
	s.rt = rt
	return rt, err
}

// Down implements bridge.Runtimes.
func (*single) Down(runtime.Profile) (time.Time, bool) { return time.Time{}, false }

// Release implements bridge.Runtimes. A single runtime has no successor.
func (*single) Release(*runtime.Runtime) bool { return false }

// Retire implements bridge.Runtimes.
func (s *single) Retire(ctx context.Context, _ runtime.Profile) error {
	s.mu.Lock()
	rt := s.rt
	s.rt = nil
	s.mu.Unlock()
	if rt == nil {
		return nil
	}
	return rt.Stop(ctx)
}

func (s *single) stop(context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rt != nil {
		s.rt.Kill(errors.New("the test is over"))
		<-s.rt.Done()
	}
	s.cli.Close()
}

// restarting starts a fake CLI for each runtime, by a supervisor as the program has it.
type restarting struct {
	home       string
	now        func() time.Time
	script     func(process int) fakecli.Script
	supervisor *runtime.Supervisor

	mu  sync.Mutex
	all []Process
}

func newRestarting(o *Options) *restarting {
	return &restarting{home: o.home, now: o.now, script: o.script}
}

// supervised is a supervisor as bridge.Runtimes.
type supervised struct{ *runtime.Supervisor }

// Down implements bridge.Runtimes.
func (s supervised) Down(runtime.Profile) (time.Time, bool) {
	for _, status := range s.List() {
		if status.Runtime == nil && status.LastError != nil {
			return status.RetryAt, true
		}
	}
	return time.Time{}, false
}

func (r *restarting) supervise(start bridge.Start) bridge.Runtimes {
	r.supervisor = runtime.NewSupervisor(runtime.SupervisorConfig{
		Start: func(ctx context.Context, p runtime.Profile) (*runtime.Runtime, error) {
			return start(ctx, runtime.Config{Profile: p, Runner: runtime.InProcess(r.run)})
		},
		Backoff: runtime.Backoff{First: time.Millisecond, Max: 20 * time.Millisecond},
		Breaker: runtime.Breaker{Limit: 5, Cooldown: 200 * time.Millisecond},
	})
	return supervised{r.supervisor}
}

func (r *restarting) run(_ context.Context, spec runtime.Spec) (io.ReadWriteCloser, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	cli := fakecli.New(fakecli.Options{Script: r.script(len(r.all)), Home: r.home, Now: r.now})
	r.all = append(r.all, Process{cli, spec.Profile})
	return cli.Connect(), nil
}

func (r *restarting) started() []Process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

func (r *restarting) stop(ctx context.Context) {
	_ = r.supervisor.Stop(ctx)
	for _, p := range r.started() {
		p.Close()
	}
}
