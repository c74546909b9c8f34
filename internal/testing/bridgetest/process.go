package bridgetest

import (
	"context"
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

// processes starts fake CLIs for the runtimes of a bridge, by a supervisor as the program has it.
type processes struct {
	options    *Options
	supervisor *runtime.Supervisor

	mu  sync.Mutex
	all []Process
}

// newProcesses returns no process if they restart, and otherwise the one that all runtimes connect to.
func newProcesses(o *Options) *processes {
	p := &processes{options: o}
	if !o.restarts {
		p.all = []Process{{CLI: fakecli.New(fakecli.Options{Script: o.script(0)})}}
	}
	return p
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

// supervise returns the supervisor of the runtimes.
func (p *processes) supervise(start bridge.Start) bridge.Runtimes {
	p.supervisor = runtime.NewSupervisor(runtime.SupervisorConfig{
		Start: func(ctx context.Context, profile runtime.Profile) (*runtime.Runtime, error) {
			return start(ctx, runtime.Config{Profile: profile, Runner: runtime.InProcess(p.run)})
		},
		Backoff: runtime.Backoff{First: time.Millisecond, Max: 20 * time.Millisecond},
		Breaker: runtime.Breaker{Limit: 5, Cooldown: 200 * time.Millisecond},
	})
	return supervised{p.supervisor}
}

func (p *processes) run(_ context.Context, spec runtime.Spec) (io.ReadWriteCloser, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.options
	if !o.restarts {
		return o.connection(p.all[0].Connect()), nil
	}
	cli := fakecli.New(fakecli.Options{Script: o.script(len(p.all)), Home: o.home, Now: o.now})
	p.all = append(p.all, Process{cli, spec.Profile})
	return cli.Connect(), nil
}

func (p *processes) started() []Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}

// stop ends the runtimes and the fake CLIs. A call that a CLI does not answer would hold the bridge's end.
func (p *processes) stop(ctx context.Context) {
	_ = p.supervisor.Stop(ctx)
	for _, one := range p.started() {
		one.Close()
	}
}
