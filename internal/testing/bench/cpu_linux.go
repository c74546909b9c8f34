package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the user and system time that a process has used: what getrusage
// tells of the own process, at the resolution of the scheduler's clock.
func cpuTime(pid int) (time.Duration, error) {
	// The clock of another process has its pid's complement in the id, and 2 for the
	// scheduler's time: see clock_getcpuclockid(3).
	var now unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|2, &now); err != nil {
		return 0, fmt.Errorf("cpu clock of process %d: %w", pid, err)
	}
	return time.Duration(now.Nano()), nil
}

// childOf returns the only child of a process.
func childOf(pid int) (int, error) {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return 0, err
	}
	var children []string
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			return 0, err
		}
		children = append(children, strings.Fields(string(text))...)
	}
	if len(children) != 1 {
		return 0, fmt.Errorf("process %d has %d children, want 1", pid, len(children))
	}
	return strconv.Atoi(children[0])
}
