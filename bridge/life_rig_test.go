package bridge

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// lives is a rig whose fake CLI has as many lives as it takes, on one history.
type lives struct {
	*rig
	home       string
	supervisor *runtime.Supervisor
	// now is the clock of the fake CLIs; nil is that of this machine.
	now func() time.Time
	// script is of the next life.
	script func(life int) fakecli.Script

	cliMu sync.Mutex
	clis  []*fakecli.CLI
	// profiles are the profiles of the started processes.
	profiles []runtime.Profile
	born     chan *fakecli.CLI
}

// supervised is a keeper of runtimes as the program has it.
type supervised struct{ *runtime.Supervisor }

// Down implements Runtimes.
func (k supervised) Down(runtime.Profile) (time.Time, bool) {
	for _, status := range k.List() {
		if status.Runtime == nil && status.LastError != nil {
			return status.RetryAt, true
		}
	}
	return time.Time{}, false
}

func newLives(t *testing.T, script func(life int) fakecli.Script, change ...func(*Config)) *lives {
	t.Helper()
	return newLivesAt(t, t.TempDir(), script, change...)
}

// newLivesAt is newLives on a history that may be there already.
func newLivesAt(t *testing.T, home string, script func(life int) fakecli.Script, change ...func(*Config)) *lives {
	t.Helper()
	l := &lives{home: home, script: script, born: make(chan *fakecli.CLI, 1000)}
	l.rig = newRig(t, fakecli.Script{}, append(change, func(c *Config) {
		c.Runtimes = func(start Start) Runtimes {
			l.supervisor = runtime.NewSupervisor(runtime.SupervisorConfig{
				Start: func(ctx context.Context, p runtime.Profile) (*runtime.Runtime, error) {
					return start(ctx, runtime.Config{Profile: p, Runner: runtime.InProcess(l.run)})
				},
				Backoff: runtime.Backoff{First: time.Millisecond, Max: 20 * time.Millisecond},
				Breaker: runtime.Breaker{Limit: 5, Cooldown: 200 * time.Millisecond},
			})
			return supervised{l.supervisor}
		}
	})...)
	t.Cleanup(func() {
		l.end()
		l.streams.Wait()
		_ = l.supervisor.Stop(context.WithoutCancel(t.Context()))
		l.cliMu.Lock()
		defer l.cliMu.Unlock()
		for _, cli := range l.clis {
			cli.Close()
		}
	})
	return l
}

func (l *lives) run(_ context.Context, spec runtime.Spec) (io.ReadWriteCloser, error) {
	l.cliMu.Lock()
	defer l.cliMu.Unlock()
	cli := fakecli.New(fakecli.Options{Script: l.script(len(l.clis)), Home: l.home, Now: l.now})
	l.clis, l.profiles = append(l.clis, cli), append(l.profiles, spec.Profile)
	l.born <- cli
	return cli.Connect(), nil
}

// life is the newest life.
func (l *lives) life() *fakecli.CLI {
	l.cliMu.Lock()
	defer l.cliMu.Unlock()
	return l.clis[len(l.clis)-1]
}

// count is how many lives there have been.
func (l *lives) count() int {
	l.cliMu.Lock()
	defer l.cliMu.Unlock()
	return len(l.clis)
}

// frame waits for the first frame that a test accepts.
func (s *reading) frame(what string, found func(*bridgev1.SubscribeResponse) bool) *bridgev1.SubscribeResponse {
	s.t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		select {
		case f := <-s.frames:
			if found(f) {
				return f
			}
		case err := <-s.err:
			for len(s.frames) > 0 { // sent before the stream ended
				if f := <-s.frames; found(f) {
					return f
				}
			}
			s.t.Fatalf("the stream ended before %s: %v", what, err)
		case <-timeout:
			s.t.Fatalf("%s never came", what)
		}
	}
}

func (s *reading) restarted() *bridgev1.RuntimeRestarted {
	s.t.Helper()
	return s.frame("the runtime's end", func(f *bridgev1.SubscribeResponse) bool { return f.GetRuntimeRestarted() != nil }).GetRuntimeRestarted()
}

// eventually polls until holds returns true. It is for conditions without an event to wait for.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline, tick := time.After(20*time.Second), time.NewTicker(5*time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
