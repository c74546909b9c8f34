//go:build unix

package runtime

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/clibin"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/process"
)

// realCache is where the real CLI unpacks itself, once for all tests.
var realCache struct {
	once sync.Once
	dir  string
	bin  clibin.Binary
	err  error
}

func removeRealCache() {
	if realCache.dir != "" {
		_ = os.RemoveAll(realCache.dir)
	}
}

// realCLI finds the real CLI and unpacks it, or skips the test.
func realCLI(t *testing.T) (clibin.Binary, string) {
	t.Helper()
	if testing.Short() {
		t.Skip("NOT RUN: -short")
	}
	c := &realCache
	c.once.Do(func() {
		if c.dir, c.err = os.MkdirTemp("", "copilot-grpc-runtime-test-"); c.err != nil {
			return
		}
		l := clibin.Locator{CacheDir: c.dir, NoInstall: true}
		if c.bin, c.err = l.Locate(context.Background()); c.err == nil {
			_, c.err = l.Unpack(context.Background(), c.bin)
		}
	})
	if c.err != nil {
		t.Skipf("NOT RUN: no real CLI: %v", c.err)
	}
	return c.bin, c.dir
}

func realConfig(t *testing.T) Config {
	t.Helper()
	bin, cache := realCLI(t)
	return Config{
		Runner:  &Spawner{Locator: clibin.Locator{Explicit: bin.Path, CacheDir: cache, NoInstall: true}},
		Profile: Profile{Home: t.TempDir(), UserHome: t.TempDir(), Dir: t.TempDir()},
		Logger:  testLogger(t),
	}
}

// createBusySession gives the runtime a session with two processes: one that the CLI manages, and one in a
// separate process session. It returns their pids.
func createBusySession(t *testing.T, r *Runtime) []int {
	t.Helper()
	dir := r.Profile().Dir
	pipe := filepath.Join(dir, "pids")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	command := fmt.Sprintf("setsid sleep 1000 </dev/null >/dev/null 2>&1 & echo $! $$ > %q; sleep 1000", pipe)
	raw, err := json.Marshal(map[string]string{"sessionId": "s1", "command": command})
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range [][2]string{
		{"session.create", `{"sessionId":"s1"}`},
		{"session.shell.exec", string(raw)},
	} {
		if _, err := r.Conn().Call(t.Context(), call[0], []byte(call[1])); err != nil {
			t.Fatalf("%s: %v", call[0], err)
		}
	}
	f, err := os.Open(pipe) // returns when the shell has opened it too
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var pids [2]int
	if _, err := fmt.Fscan(f, &pids[0], &pids[1]); err != nil {
		t.Fatal(err)
	}
	return pids[:]
}

// locks are the lock files of the runtime's process.
func locks(t *testing.T, r *Runtime) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(r.Profile().Home, "session-state", "*", "inuse.*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestRealCLI(t *testing.T) {
	t.Setenv("PLANTED_SECRET", "leak")
	r := start(t, realConfig(t))
	info := r.Info()
	if clibin.SupportOf(info.CLIVersion) == clibin.Unsupported || info.Protocol != ProtocolVersion ||
		info.CLIVersion != realCache.bin.Version {
		t.Errorf("Info = %+v", info)
	}
	t.Logf("cli %s ready after %v, %d MiB", info.CLIVersion, info.StartTook, r.RSS()>>20)
	if _, err := r.Conn().Call(t.Context(), "ping", []byte("{}")); err != nil {
		t.Error(err)
	}
	env := processEnv(t, info.Peer.PID)
	if _, ok := env["PLANTED_SECRET"]; ok {
		t.Error("our environment reached the CLI")
	}
	if env[clibin.PkgCacheEnv] != realCache.dir || env["HOME"] != r.Profile().UserHome {
		t.Errorf("environment = %v", keys(env))
	}
	// It used what was unpacked, instead of unpacking itself into its home.
	if _, err := os.Stat(filepath.Join(r.Profile().UserHome, ".cache", "copilot")); err == nil {
		t.Error("the CLI unpacked itself once more")
	}
	pids := createBusySession(t, r)
	if len(locks(t, r)) == 0 {
		t.Error("no lock file: the test would not notice one left behind")
	}
	stop(t, r)
	ended(t, r, fault.RuntimeStopping)
	for _, pid := range append(pids, info.Peer.PID) {
		if marked(t, pid) || pid == info.Peer.PID && alive(pid) {
			t.Errorf("process %d is there after Stop", pid)
		}
	}
	if left := locks(t, r); len(left) != 0 {
		t.Errorf("lock files left: %q", left)
	}
}

func TestRealCLIKilled(t *testing.T) {
	t.Parallel()
	r := start(t, realConfig(t))
	pids := createBusySession(t, r)
	if err := syscall.Kill(r.Info().Peer.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	f := ended(t, r, fault.CLIExited)
	if f.Metadata["signal"] != "killed" {
		t.Errorf("Err = %v, %v", f, f.Metadata)
	}
	for _, pid := range pids {
		if marked(t, pid) {
			t.Errorf("orphan %d is alive", pid)
		}
	}
	if left := locks(t, r); len(left) != 0 {
		t.Errorf("lock files left: %q", left)
	}
}

func TestRealCLIDiesWithItsParent(t *testing.T) {
	t.Parallel()
	bin, cache := realCLI(t)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, bin.Path, cache, t.TempDir())
	cmd.Env = []string{roleEnv + "=parent", "PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(firstLine(t, out))
	if err != nil {
		t.Fatal(err)
	}
	gone := exitOf(t, pid)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	gone(t)
}

func TestRealCLIDialled(t *testing.T) {
	t.Parallel()
	bin, cache := realCLI(t)
	home := t.TempDir()
	ctx, cancel := context.WithCancel(context.Background())
	p, err := process.Start(ctx, process.Options{
		Path: bin.Path, Args: []string{"--headless", "--no-auto-update", "--no-auto-login", "--port", "0"},
		Env: []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + home, "COPILOT_HOME=" + home,
			clibin.PkgCacheEnv + "=" + cache, "COPILOT_CONNECTION_TOKEN=s3cret",
		},
		InputGrace: 1, // a TCP server does not end with its input
	})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		<-p.Done()
		p.Close()
	})
	line := firstLine(t, p)
	address := "127.0.0.1:" + line[strings.LastIndexByte(line, ' ')+1:]

	if _, err := Start(t.Context(),
		Config{Runner: &Dialer{Address: address, Token: "wrong"}}); fault.ReasonOf(err) != fault.RuntimeAuthFailed {
		t.Errorf("Start with a wrong token = %v", err)
	}
	r := start(t, Config{Runner: &Dialer{Address: address, Token: "s3cret"}})
	if r.Info().CLIVersion != bin.Version {
		t.Errorf("Info = %+v", r.Info())
	}
	stop(t, r)
	if isDone(p.Done()) {
		t.Error("the server ended with our connection")
	}
	again := start(t, Config{Runner: &Dialer{Address: address, Token: "s3cret"}})
	cancel()
	<-p.Done()
	ended(t, again, fault.CLIExited)
	_, _ = io.Copy(io.Discard, p)
}
