package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/process"
	"github.com/copilot-grpc/copilot-grpc/internal/timerslack"
)

// toldEnv makes this program, which has the init functions of copilot-grpc, say its timer slack and that of a process
// which it starts as a runtime.
const toldEnv = "SLACK_TEST"

// againEnv is what marks the second execution.
const againEnv = timerslack.Variable + "_SET"

func TestMain(m *testing.M) {
	if os.Getenv(toldEnv) != "" {
		tell()
		return
	}
	os.Exit(m.Run())
}

func tell() {
	own, err := timerslack.Get()
	if os.Getenv(againEnv) != "" {
		fmt.Println("the variable of the second execution is left")
	}
	switch os.Getenv(toldEnv) {
	case "child":
		fmt.Println(own)
		return
	case "parent": // of a server that inherits its slack
		self, _ := os.Executable()
		cmd := exec.Command(self, "serve")
		cmd.Env, cmd.Stdout = []string{toldEnv + "=child"}, os.Stdout
		if err := cmd.Run(); err != nil {
			fmt.Println(err)
		}
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	self, _ := os.Executable()
	child, failed := process.Start(ctx, process.Options{Path: self, Env: []string{toldEnv + "=child"}})
	if err != nil || failed != nil {
		fmt.Println(err, failed)
		return
	}
	line, _ := bufio.NewReader(child).ReadString('\n')
	runtime.LockOSThread()
	_ = timerslack.Without(func() error { return nil })
	after, _ := timerslack.Get()
	fmt.Print(own, " ", after, " ", line)
	cancel()
	<-child.Done()
}

// A server runs with its timer slack, also after it has started a CLI process, which has the kernel's. Other commands
// have the kernel's, and a slack that was inherited is kept.
func TestTimerSlack(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if own, err := timerslack.Get(); err != nil || own != timerslack.Kernel {
		t.Skipf("this process has a timer slack of its own: %v, %v", own, err)
	}
	for name, test := range map[string]struct {
		command, variable, want, role, env string
	}{
		"a server":                   {"serve", "", "1ms 1ms 50µs", "self", ""},
		"a shim":                     {"shim", "", "1ms 1ms 50µs", "self", ""},
		"a server with another":      {"serve", "3ms", "3ms 3ms 50µs", "self", ""},
		"a server without":           {"serve", "50us", "50µs 50µs 50µs", "self", ""},
		"a server that inherits one": {"serve", "3ms", "3ms", "parent", ""},
		"a server that was executed again in vain": {"serve", "", "50µs 50µs 50µs", "self", againEnv + "=1"},
		"a command of short life":                  {"version", "", "50µs 50µs 50µs", "self", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), self, test.command)
			cmd.Env = append(os.Environ(), test.env, toldEnv+"="+test.role, timerslack.Variable+"="+test.variable)
			out, err := cmd.CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != test.want {
				t.Errorf("%q, %v; want %q", got, err, test.want)
			}
		})
	}
}
