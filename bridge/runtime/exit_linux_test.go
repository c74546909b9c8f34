package runtime

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// exitOf watches a process that is not our child; the function it returns fails
// the test if it does not end.
func exitOf(t *testing.T, pid int) func(*testing.T) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("pidfd of %d: %v", pid, err)
	}
	return func(t *testing.T) {
		t.Helper()
		defer unix.Close(fd)
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 10_000)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if n == 0 {
				t.Errorf("process %d is alive", pid)
			}
			return
		}
	}
}
