// Package leakgate fails a package's tests when they leave goroutines or child
// processes, zombies included, behind.
package leakgate

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// childGrace is how long a child that is ending anyway may take.
const childGrace = 3 * time.Second

// Run runs the tests and returns the exit status for os.Exit.
func Run(m *testing.M) int {
	code := m.Run()
	if code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintf(os.Stderr, "leaked goroutines: %v\n", err)
		code = 1
	}
	if left := childrenAfter(childGrace); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "leaked child processes: %s\n", strings.Join(left, ", "))
		code = 1
	}
	return code
}

// childrenAfter polls, since nothing announces the end of a child that someone
// else waits for.
func childrenAfter(grace time.Duration) []string {
	deadline := time.Now().Add(grace)
	for {
		left := children()
		if len(left) == 0 || time.Now().After(deadline) {
			return left
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// children lists our children as "pid name state"; without /proc there are none.
func children() []string {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	var list []string
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		name, rest, ok := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		if ok && len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			list = append(list, name+") "+fields[0])
		}
	}
	return list
}
