//go:build unix

package runtime

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/leak"
)

// roleEnv makes the test binary play the fake CLI or the parent of a runtime.
const roleEnv = "RUNTIME_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleEnv) {
	case "cli":
		os.Exit(fakecli.Main(os.Args[1:], os.Getenv, os.Stdin, os.Stdout, os.Stderr))
	case "parent":
		playParent()
		return
	}
	leak.Main(tests{m})
}

// tests are the package's, and clear away what they share.
type tests struct{ *testing.M }

func (t tests) Run() int {
	defer removeRealCache()
	return t.M.Run()
}

// playParent starts a runtime as the arguments say, names it, and waits to be
// killed.
func playParent() {
	s := &Spawner{Locator: clibin.Locator{Explicit: os.Args[1], CacheDir: os.Args[2], NoInstall: true}}
	r, err := Start(context.Background(), Config{Runner: s, Profile: Profile{Home: os.Args[3]}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(r.Info().Peer.PID)
	for {
		time.Sleep(time.Hour) // until it is ended; an empty select would be a deadlock
	}
}

// fakeProgram writes a program that is the fake CLI after running the given
// shell lines. It is a script because the locator refuses this very program.
func fakeProgram(t *testing.T, before string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "copilot")
	// A race-detecting program sleeps a second before it exits unless told not to.
	text := fmt.Sprintf("#!/bin/sh\n%s\nGORACE=atexit_sleep_ms=0 %s=cli exec %q \"$@\"\n", before, roleEnv, exe)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// spawned is the configuration of a runtime that is a child process: the fake CLI with a script, in a new home.
func spawned(t *testing.T, script fakecli.Script, before string) Config {
	t.Helper()
	raw, err := json.Marshal(script)
	if err != nil {
		t.Fatal(err)
	}
	// The version probe and the unpacking do not get the profile's environment,
	// so they meet a well-behaved CLI.
	return Config{
		Runner: &Spawner{
			Locator:    clibin.Locator{Explicit: fakeProgram(t, before), CacheDir: t.TempDir(), NoInstall: true},
			InputGrace: 5 * time.Second, TermGrace: time.Second,
		},
		Profile: Profile{Home: t.TempDir(), Env: map[string]string{"FAKECOPILOT_SCRIPT": string(raw)}},
		Logger:  testLogger(t),
	}
}

// inProcess is the configuration of a runtime in this process. clis gets every
// fake that is started.
func inProcess(t *testing.T, script fakecli.Script, clis func(*fakecli.CLI)) Config {
	t.Helper()
	return Config{Runner: InProcess(func(context.Context, Spec) (io.ReadWriteCloser, error) {
		cli := fakecli.New(fakecli.Options{Script: script})
		t.Cleanup(cli.Close)
		if clis != nil {
			clis(cli)
		}
		return cli.Connect(), nil
	})}
}

func start(t *testing.T, cfg Config) *Runtime {
	t.Helper()
	r, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatalf("Start: %v", err)
	}
	t.Cleanup(func() { stop(t, r) })
	return r
}

func stop(t *testing.T, r *Runtime) {
	t.Helper()
	if err := r.Stop(context.Background()); err != nil {
		t.Errorf("Stop: %v", err)
	}
}

// ended waits for the end of a runtime and checks its reason.
func ended(t *testing.T, r *Runtime, reason fault.Reason) *fault.Error {
	t.Helper()
	<-r.Done()
	var f *fault.Error
	if err := r.Err(); fault.ReasonOf(err) != reason {
		t.Fatalf("Err = %v (%s), want %s", err, fault.ReasonOf(err), reason)
	} else {
		f = err.(*fault.Error)
	}
	return f
}

// testLogger writes to the test's log, for as long as the test runs.
func testLogger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// processEnv is the environment of a process.
func processEnv(t *testing.T, pid int) map[string]string {
	t.Helper()
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		t.Skipf("NOT RUN: no /proc: %v", err)
	}
	env := map[string]string{}
	for entry := range strings.SplitSeq(strings.TrimSuffix(string(raw), "\x00"), "\x00") {
		name, value, _ := strings.Cut(entry, "=")
		env[name] = value
	}
	return env
}

func keys[V any](m map[string]V) map[string]bool {
	set := map[string]bool{}
	for k := range maps.Keys(m) {
		set[k] = true
	}
	return set
}

func firstLine(t *testing.T, r io.Reader) string {
	t.Helper()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil {
		t.Fatalf("reading a line: %v", err)
	}
	return strings.TrimSpace(line)
}
