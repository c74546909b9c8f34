// Package leak fails a test binary that leaves something behind: a goroutine,
// a child process that still runs, or a dead one without a Wait. A package
// with goroutines or children calls it once:
//
//	func TestMain(m *testing.M) { leak.Main(m) }
//
// The children are read from /proc, so that part watches on Linux only.
package leak

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"go.uber.org/goleak"
)

// grace is how long what is already ending may take to end. A process that was
// killed stays visible until its owner has waited for it, a moment later.
const grace = 5 * time.Second

// Runner runs tests: a [testing.M], or something around one that sets up and ends what
// the tests share.
type Runner interface {
	// Run runs them and returns the exit code.
	Run() int
}

var _ Runner = (*testing.M)(nil)

// Main runs the tests and exits with their code, or with 1 if they passed but left
// something behind. The options go to goleak: they name goroutines that outlive the
// tests with good reason, such as one started by a library for the whole process.
func Main(m Runner, options ...goleak.Option) {
	code := m.Run()
	if code == 0 {
		code = report(check(grace, options...))
	}
	os.Exit(code)
}

// report prints what was left behind and turns it into an exit code.
func report(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, "leak:", err)
	return 1
}

// check looks at children before goroutines: a goroutine that waits for a child is
// then a consequence, and the child the cause worth naming first.
func check(within time.Duration, options ...goleak.Option) error {
	if proc, err := procfs.NewDefaultFS(); err == nil { // it fails where there is none
		left, err := settle(within, func() ([]procfs.ProcStat, error) { return children(proc, os.Getpid()) })
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return fmt.Errorf("child processes left behind: %s", describe(left))
		}
	}
	return goleak.Find(options...)
}

// settle looks until nothing is left or the time is up, and returns the last result. It polls, since the kernel reports
// an exit only to the parent's Wait.
func settle(within time.Duration, list func() ([]procfs.ProcStat, error)) ([]procfs.ProcStat, error) {
	deadline := time.Now().Add(within)
	for {
		left, err := list()
		if err != nil || len(left) == 0 || time.Now().After(deadline) {
			return left, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// describe names the processes in one line.
func describe(left []procfs.ProcStat) string {
	words := make([]string, len(left))
	for i, p := range left {
		state := "running"
		if p.State == stateZombie {
			state = "zombie"
		}
		words[i] = fmt.Sprintf("%q (pid %d, %s)", p.Comm, p.PID, state)
	}
	return strings.Join(words, ", ")
}
