package worker

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
)

// goroutineID is the runtime's number of the calling goroutine.
func goroutineID() string {
	stack := make([]byte, 64)
	_, rest, _ := strings.Cut(string(stack[:runtime.Stack(stack, false)]), " ")
	id, _, _ := strings.Cut(rest, " ")
	return id
}

func TestWorkerUsesItsGoroutineAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w, ids := New(ctx), make(map[string]int)
		for range 10 {
			w.Do(func() { ids[goroutineID()]++ })
			synctest.Wait()
		}
		if len(ids) != 1 {
			t.Errorf("jobs one after another ran on the goroutines %v", ids)
		}
	})
}

// The bubble fails the test if a goroutine is left when ctx has ended.
func TestWorkerRunsJobsBesideBlockedOnes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w, release, done := New(ctx), make(chan struct{}), make(chan struct{}, 8)
		for range 4 {
			w.Do(func() {
				<-release
				done <- struct{}{}
			})
		}
		w.Do(func() { done <- struct{}{} })
		synctest.Wait()
		if len(done) != 1 {
			t.Errorf("%d jobs have ended, want only the one that does not block", len(done))
		}
		close(release)
		synctest.Wait()
		if len(done) != 5 {
			t.Errorf("%d jobs have ended, want 5", len(done))
		}
		cancel()
	})
}
