//go:build unix && !linux

package runtime

import (
	"syscall"
	"testing"
	"time"
)

// exitOf watches a process that is not our child; the function it returns fails
// the test if it does not end. Nothing here announces that, so it polls.
func exitOf(_ *testing.T, pid int) func(*testing.T) {
	return func(t *testing.T) {
		t.Helper()
		for range 100 {
			if syscall.Kill(pid, 0) != nil {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Errorf("process %d is alive", pid)
	}
}
