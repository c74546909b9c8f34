//go:build unix

package runtime

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/progress"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// bench is a supervisor over fakes in this process, on the clock of a bubble.
type bench struct {
	*Supervisor
	t *testing.T

	mu     sync.Mutex
	clis   []*fakecli.CLI
	starts []time.Duration // since the beginning
	fail   error           // of the next starts
	slow   time.Duration   // what a start takes
	before progress.Stage  // reported before slow
	downs  []Down
	ups    int
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t}
	begin := time.Now()
	cfg := inProcess(t, fakecli.Script{}, func(c *fakecli.CLI) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.clis = append(b.clis, c)
	})
	b.Supervisor = NewSupervisor(SupervisorConfig{
		Start: func(ctx context.Context, p Profile) (*Runtime, error) {
			b.mu.Lock()
			b.starts = append(b.starts, time.Since(begin))
			slow, fail := b.slow, b.fail
			b.mu.Unlock()
			progress.Report(ctx, b.before)
			select {
			case <-time.After(slow):
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
			if fail != nil {
				return nil, fail
			}
			c := cfg
			c.Profile = p
			return Start(ctx, c)
		},
		OnUp:   func(*Runtime) { b.mu.Lock(); defer b.mu.Unlock(); b.ups++ },
		OnDown: func(d Down) { b.mu.Lock(); defer b.mu.Unlock(); b.downs = append(b.downs, d) },
		Logger: testLogger(t),
	})
	t.Cleanup(func() { _ = b.Stop(context.Background()) })
	return b
}

func (b *bench) get(p Profile) *Runtime {
	b.t.Helper()
	r, err := b.Get(b.t.Context(), p)
	if err != nil {
		b.t.Fatalf("Get: %v", err)
	}
	return r
}

// crash kills the newest fake and lets the consequences happen.
func (b *bench) crash() {
	b.mu.Lock()
	c := b.clis[len(b.clis)-1]
	b.mu.Unlock()
	c.Kill()
	synctest.Wait()
}

func (b *bench) status() Status {
	b.t.Helper()
	list := b.List()
	if len(list) != 1 {
		b.t.Fatalf("List = %+v, want one", list)
	}
	return list[0]
}

func TestOneStartForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.slow = time.Second
		var all sync.WaitGroup
		got := make([]*Runtime, 10)
		for i := range got {
			all.Go(func() { got[i] = b.get(Profile{Tenant: "a"}) })
		}
		all.Wait()
		for _, r := range got {
			if r != got[0] {
				t.Error("two callers got different runtimes")
			}
		}
		if other := b.get(Profile{Tenant: "b"}); other == got[0] {
			t.Error("two profiles share a runtime")
		}
		if len(b.starts) != 2 || b.ups != 2 || len(b.List()) != 2 {
			t.Errorf("%d starts, %d ups, %d listed; want 2 each", len(b.starts), b.ups, len(b.List()))
		}
	})
}

func TestRestartAfterDeath(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		p := Profile{Tenant: "a"}
		old := b.get(p)
		if s := b.status(); s.State != StateReady || s.Runtime != old {
			t.Errorf("status = %+v", s)
		}
		b.crash()
		if s := b.status(); s.State != StateBackoff || s.Runtime != nil || s.Failures != 1 ||
			fault.ReasonOf(s.LastError) != fault.CLIExited {
			t.Errorf("status = %+v", s)
		}
		// The supervisor starts a new runtime without a caller, and a caller that asks meanwhile waits for it.
		next := b.get(p)
		if next == old || len(b.starts) != 2 || b.starts[1] != 200*time.Millisecond {
			t.Errorf("starts at %v", b.starts)
		}
		if len(b.downs) != 1 || b.downs[0].Runtime != old || !b.downs[0].Restart ||
			fault.ReasonOf(b.downs[0].Cause) != fault.CLIExited {
			t.Errorf("downs = %+v", b.downs)
		}
	})
}

func TestBackoffAndCrashLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		p := Profile{Tenant: "a"}
		for range 5 {
			b.get(p)
			b.crash()
		}
		want := []time.Duration{0, 200 * time.Millisecond, 600 * time.Millisecond, 1400 * time.Millisecond,
			3 * time.Second}
		for i := range want {
			if b.starts[i] != want[i] {
				t.Fatalf("starts at %v, want %v", b.starts, want)
			}
		}
		broken := func() {
			t.Helper()
			_, err := b.Get(t.Context(), p)
			var f *fault.Error
			if !errors.As(err, &f) || f.Reason != fault.CLICrashLoop || f.RetryAfter != time.Minute {
				t.Errorf("Get in a crash loop = %#v", err)
			}
			if s := b.status(); s.State != StateBroken {
				t.Errorf("status = %+v", s)
			}
		}
		broken()
		time.Sleep(time.Minute)
		// One more try; it fails at once, so the next cooldown begins.
		b.get(p)
		b.crash()
		broken()
		// A runtime that lives clears the record.
		time.Sleep(time.Minute)
		b.get(p)
		time.Sleep(2 * time.Minute)
		b.crash()
		if s := b.status(); s.Failures != 1 || s.State != StateBackoff {
			t.Errorf("status after a long life = %+v", s)
		}
		if last := b.downs[len(b.downs)-1]; !last.Restart {
			t.Errorf("down = %+v", last)
		}
	})
}

// Runtimes that complete turns between their ends are in no crash loop, however often they are killed.
func TestTurnsBetweenCrashes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		p := Profile{Tenant: "a"}
		for i := range 12 {
			b.get(p).TurnCompleted()
			b.crash()
			if s := b.status(); s.Failures != 1 || s.State != StateBackoff {
				t.Fatalf("status after crash %d = %+v", i, s)
			}
		}
		for range 4 { // these have completed none
			b.get(p)
			b.crash()
		}
		if s := b.status(); s.State != StateBroken {
			t.Errorf("status after four crashes without a turn = %+v", s)
		}
	})
}

func TestFailedStart(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		err    error
		starts int
		reason fault.Reason
	}{
		"may pass by itself": {fault.New(fault.CLIStartFailed, "no memory"), 5, fault.CLICrashLoop},
		"needs mending":      {fault.New(fault.CLINotFound, "nowhere"), 1, fault.CLINotFound},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.fail = tc.err
				if _, err := b.Get(t.Context(), Profile{}); !errors.Is(err, tc.err) {
					t.Errorf("Get = %v", err)
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				if len(b.starts) != tc.starts {
					t.Errorf("%d starts, want %d", len(b.starts), tc.starts)
				}
				if _, err := b.Get(t.Context(), Profile{}); fault.ReasonOf(err) != tc.reason {
					t.Errorf("Get after that = %v", err)
				}
				b.mu.Lock()
				b.fail = nil
				b.mu.Unlock()
				time.Sleep(time.Minute)
				b.get(Profile{})
			})
		})
	}
}

func TestGetIsBoundedByItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.slow = time.Minute
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Get(ctx, Profile{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Get = %v", err)
		}
		b.get(Profile{}) // the start went on
		if len(b.starts) != 1 {
			t.Errorf("%d starts, want 1", len(b.starts))
		}
		if _, err := b.Get(t.Context(), Profile{Home: "relative"}); fault.ReasonOf(err) != fault.InvalidField {
			t.Errorf("Get of an invalid profile = %v", err)
		}
	})
}

func TestRetire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		old := b.get(Profile{})
		if err := b.Retire(t.Context(), Profile{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if !isDone(old.Done()) || len(b.List()) != 0 || len(b.downs) != 1 || b.downs[0].Restart {
			t.Errorf("after Retire: %+v, downs %+v", b.List(), b.downs)
		}
		if err := b.Retire(t.Context(), Profile{}); err != nil {
			t.Errorf("Retire of nothing: %v", err)
		}
		if b.get(Profile{}) == old {
			t.Error("got the retired runtime")
		}
		// A start in progress is cancelled.
		b.mu.Lock()
		b.slow = time.Hour
		b.mu.Unlock()
		got := make(chan error)
		go func() {
			_, err := b.Get(t.Context(), Profile{Tenant: "slow"})
			got <- err
		}()
		synctest.Wait()
		if err := b.Retire(t.Context(), Profile{Tenant: "slow"}); err != nil {
			t.Error(err)
		}
		if err := <-got; fault.ReasonOf(err) != fault.RuntimeStopping {
			t.Errorf("Get of a retired start = %v", err)
		}
	})
}

// A caller that asks for a runtime that is being stopped gets its successor.
func TestGetDuringStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		old := b.get(Profile{})
		go func() { _ = old.Stop(context.Background()) }()
		<-old.Lost()
		synctest.Wait()
		if next := b.get(Profile{}); next == old || isDone(next.Lost()) {
			t.Error("got a runtime that is stopping")
		}
		if len(b.starts) != 2 {
			t.Errorf("%d starts, want 2", len(b.starts))
		}
	})
}

func TestStopAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		one, two := b.get(Profile{Tenant: "1"}), b.get(Profile{Tenant: "2"})
		b.mu.Lock()
		b.slow = time.Hour
		b.mu.Unlock()
		got := make(chan error)
		go func() {
			_, err := b.Get(t.Context(), Profile{Tenant: "3"})
			got <- err
		}()
		synctest.Wait()
		if err := b.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !isDone(one.Done()) || !isDone(two.Done()) || len(b.downs) != 2 || len(b.List()) != 0 {
			t.Errorf("after Stop: %+v, %d downs", b.List(), len(b.downs))
		}
		if err := <-got; fault.ReasonOf(err) != fault.RuntimeStopping {
			t.Errorf("the waiting Get = %v", err)
		}
		if _, err := b.Get(t.Context(), Profile{}); fault.ReasonOf(err) != fault.RuntimeStopping {
			t.Errorf("Get after Stop = %v", err)
		}
		if err := b.Stop(t.Context()); err != nil {
			t.Errorf("second Stop: %v", err)
		}
	})
}

// A released runtime keeps running. The supervisor reports its end, and starts a replacement for the next
// caller.
func TestRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		p := Profile{Tenant: "a"}
		old, other := b.get(p), b.get(Profile{Tenant: "b"})
		if !b.Release(old) || b.Release(old) {
			t.Error("not released exactly once")
		}
		synctest.Wait()
		next := b.get(p)
		if next == old || b.get(p) != next || b.get(Profile{Tenant: "b"}) != other {
			t.Error("who asks is not given the successor")
		}
		if isDone(old.Done()) || len(b.downs) > 0 {
			t.Errorf("the old runtime has ended: %v", b.downs)
		}
		if b.Release(old) {
			t.Error("the old one was released again in its successor's place")
		}
		if err := old.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(b.downs) != 1 || b.downs[0].Runtime != old || b.downs[0].Restart {
			t.Errorf("downs = %+v", b.downs)
		}
		if b.get(p) != next || len(b.starts) != 3 {
			t.Errorf("%d starts; the end of the old one took its successor along", len(b.starts))
		}
		// One that is let go is ended with the rest.
		if !b.Release(next) {
			t.Error("not released")
		}
		if err := b.Stop(t.Context()); err != nil || !isDone(next.Done()) || b.Release(other) {
			t.Errorf("after Stop: %v", err)
		}
	})
}

// Callers that wait for a start hear of its stages, those that come later of the current one. A caller that does not
// have to wait hears nothing.
func TestGetReportsProgress(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		fail error
		want []progress.Stage
	}{
		"starts":         {nil, []progress.Stage{progress.Installing, progress.Starting}},
		"cannot install": {fault.New(fault.CLIInstallFailed, "no npm"), []progress.Stage{progress.Installing}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.slow, b.before, b.fail = time.Minute, progress.Installing, tc.fail
				var mu sync.Mutex
				get := func(heard *[]progress.Stage) error {
					ctx, stop := progress.Watch(t.Context(), func(s progress.Stage) {
						mu.Lock()
						defer mu.Unlock()
						*heard = append(*heard, s)
					})
					defer stop()
					_, err := b.Get(ctx, Profile{})
					return err
				}
				var first, late, ready []progress.Stage
				var waiting sync.WaitGroup
				for after, heard := range map[time.Duration]*[]progress.Stage{0: &first, time.Second: &late} {
					waiting.Go(func() {
						time.Sleep(after)
						if err := get(heard); fault.ReasonOf(err) != fault.ReasonOf(tc.fail) {
							t.Errorf("Get = %v", err)
						}
					})
				}
				time.Sleep(30 * time.Second)
				synctest.Wait()
				mu.Lock()
				if want := []progress.Stage{progress.Installing}; !slices.Equal(first, want) || !slices.Equal(late, want) {
					t.Errorf("while it is installed: %v and %v, want %v", first, late, want)
				}
				mu.Unlock()
				waiting.Wait()
				if !slices.Equal(first, tc.want) || !slices.Equal(late, tc.want) {
					t.Errorf("reported %v and %v, want %v", first, late, tc.want)
				}
				if tc.fail == nil && (get(&ready) != nil || ready != nil) {
					t.Errorf("reported %v to a caller that does not wait", ready)
				}
			})
		})
	}
}
