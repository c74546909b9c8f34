package cluster

import (
	"time"

	"golang.org/x/sys/unix"
)

// uptime returns the time since the machine started, with the time in which it was suspended. It never goes back.
func uptime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic("the kernel has no CLOCK_BOOTTIME: " + err.Error()) // it has since Linux 2.6.39
	}
	return time.Duration(t.Nano())
}
