//go:build unix

package process_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/process"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/leak"
)

// roleEnv makes the test binary play one of the children in roles.
const roleEnv = "PROCESS_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		roles[role]()
		return
	}
	leak.Main(m)
}

// sleep is for children that are ended from outside; an empty select would be a deadlock.
func sleep() {
	for {
		time.Sleep(time.Hour)
	}
}

var roles = map[string]func(){
	"echo": func() { _, _ = io.Copy(os.Stdout, os.Stdin) },
	"env":  func() { fmt.Println(strings.Join(os.Environ(), "\n")) },
	// deaf ignores the end of its input, but not SIGTERM.
	"deaf": func() { fmt.Println("ready"); sleep() },
	// polite ends in order, though only on SIGTERM.
	"polite": func() {
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM)
		fmt.Println("ready")
		<-c
		os.Exit(7)
	},
	"stubborn": func() {
		signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
		fmt.Println("ready")
		sleep()
	},
	"noisy": func() {
		for i := range 5000 {
			fmt.Fprintf(os.Stderr, "line %d\n", i)
		}
		fmt.Fprintln(os.Stderr, strings.Repeat("x", 10_000))
		fmt.Fprint(os.Stderr, "last words \xff")
		os.Exit(3)
	},
	// litter starts two processes in separate process sessions, one of which keeps stdout open, and continues
	// until its input ends.
	"litter": func() {
		for i := range 2 {
			c := exec.Command("sleep", "1000")
			c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if i == 0 {
				c.Stdout = os.Stdout
			}
			if err := c.Start(); err != nil {
				panic(err)
			}
			fmt.Println(c.Process.Pid)
		}
		_, _ = io.Copy(io.Discard, os.Stdin)
	},
	// parent starts the child named in PROCESS_TEST_CHILD, passes its output on
	// and waits to be killed.
	"parent": func() {
		p, err := process.Start(context.Background(), roleOptions(os.Getenv("PROCESS_TEST_CHILD")))
		if err != nil {
			panic(err)
		}
		fmt.Println(p.PID())
		_, _ = io.Copy(os.Stdout, p)
	},
}

func roleOptions(role string, env ...string) process.Options {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return process.Options{
		Path: exe,
		// A race-detecting program sleeps a second before it exits unless told not to.
		Env: append([]string{roleEnv + "=" + role, "PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"}, env...),
	}
}

// start starts a role and makes sure that it is gone when the test is over.
func start(t *testing.T, o process.Options) (*process.Process, context.CancelCauseFunc) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	p, err := process.Start(ctx, o)
	if err != nil {
		cancel(nil)
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() {
		cancel(nil)
		<-p.Done()
		p.Close()
	})
	return p, cancel
}

func readLine(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("reading a line: %v", err)
	}
	return strings.TrimSpace(line)
}
