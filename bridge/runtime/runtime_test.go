//go:build unix

package runtime

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/process"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }

func TestLifeAndStop(t *testing.T) {
	t.Setenv("PLANTED_SECRET", "leak")
	r := start(t, spawned(t, fakecli.Script{}, ""))
	pid := r.Info().Peer.PID
	if pid == 0 || !alive(pid) || r.Info().CLIVersion != fakecli.DefaultVersion || r.Err() != nil {
		t.Fatalf("Info = %+v, Err = %v", r.Info(), r.Err())
	}
	if rss := r.RSS(); rss < 1<<20 {
		t.Errorf("RSS = %d", rss)
	}
	env := processEnv(t, pid)
	if _, ok := env["PLANTED_SECRET"]; ok {
		t.Error("our environment reached the child")
	}
	if env["COPILOT_HOME"] != r.Profile().Home || env[process.MarkerEnv] == "" {
		t.Errorf("environment of the child = %v", env)
	}
	stop(t, r)
	if alive(pid) {
		t.Error("the process is there after Stop")
	}
	f := ended(t, r, fault.RuntimeStopping)
	if f.Metadata["exit_code"] != "0" {
		t.Errorf("not an orderly end: %+v", f)
	}
	if r.RSS() != 0 {
		t.Error("RSS of a runtime that is gone")
	}
	stop(t, r)
}

func TestKilledRuntimeLeavesNothing(t *testing.T) {
	t.Parallel()
	cfg := spawned(t, fakecli.Script{}, `[ "$1" = --headless ] && [ -z "$COPILOT_SEA_EXTRACT_ONLY" ] && {
		setsid sleep 1000 <&- >&- 2>&- & echo $! > "$COPILOT_HOME/orphan"; }`)
	r := start(t, cfg)
	pid := r.Info().Peer.PID
	session := filepath.Join(cfg.Profile.Home, "session-state", "abc")
	if err := os.MkdirAll(session, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, owner := range []string{strconv.Itoa(pid), "999999999"} {
		for _, ext := range []string{".lock", ".hold"} {
			if err := os.WriteFile(filepath.Join(session, "inuse."+owner+ext), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	raw, err := os.ReadFile(filepath.Join(cfg.Profile.Home, "orphan"))
	if err != nil {
		t.Fatal(err)
	}
	orphan, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil || !alive(orphan) {
		t.Fatalf("no orphan to be: %q", raw)
	}

	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	f := ended(t, r, fault.CLIExited)
	if f.Metadata["signal"] != "killed" || f.Metadata["pid"] != strconv.Itoa(pid) {
		t.Errorf("Err = %+v", f)
	}
	if marked(t, orphan) {
		t.Error("the orphan is alive")
	}
	left, err := filepath.Glob(filepath.Join(session, "*"))
	if err != nil || len(left) != 2 || !strings.Contains(left[0], "999999999") {
		t.Errorf("locks left = %q, want those of the other process", left)
	}
}

// marked tells whether the process is alive, zombies not counted.
func marked(t *testing.T, pid int) bool {
	t.Helper()
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return err == nil && strings.Contains(string(raw), process.MarkerEnv)
}

func TestExitByItself(t *testing.T) {
	t.Parallel()
	r := start(t,
		spawned(t, fakecli.Script{Faults: methodFault("ping", fakecli.Fault{Kind: fakecli.FaultExit, ExitCode: 9})},
			"echo warming up >&2"))
	_, err := r.Conn().Call(t.Context(), "ping", []byte("{}"))
	if err == nil {
		t.Error("ping was answered by a process that exited")
	}
	f := ended(t, r, fault.CLIExited)
	if f.Metadata["exit_code"] != "9" || f.Metadata["stderr"] != "warming up" ||
		!strings.Contains(f.Error(), "ended unexpectedly") {
		t.Errorf("Err = %v, %v", f, f.Metadata)
	}
	if !isDone(r.Lost()) {
		t.Error("done, but not lost")
	}
}

func TestHungRuntimeIsKilled(t *testing.T) {
	t.Parallel()
	cfg := spawned(t, fakecli.Script{Faults: methodFault("ping", fakecli.Fault{Kind: fakecli.FaultHang})}, "")
	cfg.PingInterval, cfg.PingTimeout = 10*time.Millisecond, 50*time.Millisecond
	r := start(t, cfg)
	f := ended(t, r, fault.CLIHung)
	if alive(r.Info().Peer.PID) {
		t.Error("the process is there")
	}
	if f.Metadata["pid"] == "" {
		t.Errorf("Err = %+v", f)
	}
}

// A CLI that is not read, since the disk is behind, is not taken for hung.
func TestRuntimeThatIsNotRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := inProcess(t, fakecli.Script{}, nil)
		var hold atomic.Bool
		cfg.RPC.Throttle = func(over <-chan struct{}) bool {
			if !hold.Load() {
				return false
			}
			select {
			case <-time.After(4 * DefaultPingTimeout):
			case <-over:
			}
			hold.Store(false)
			return true
		}
		r := start(t, cfg)
		hold.Store(true)
		time.Sleep(6 * DefaultPingTimeout)
		if isDone(r.Lost()) || hold.Load() {
			t.Errorf("the runtime was given up: %v", r.Err())
		}
		if h := r.Health(); time.Since(h.CheckedAt) > 2*DefaultPingInterval {
			t.Errorf("Health = %+v", h)
		}
		_ = r.Stop(t.Context())
	})
}

func TestHealth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := start(t, inProcess(t, fakecli.Script{Faults: []fakecli.MethodFault{
			{Method: "ping", After: 2, Fault: fakecli.Fault{Kind: fakecli.FaultHang}},
		}}, nil))
		begin := time.Now()
		time.Sleep(DefaultPingInterval + time.Second)
		if h := r.Health(); h.CheckedAt.IsZero() || h.CheckedAt.Sub(begin) != DefaultPingInterval {
			t.Errorf("Health = %+v", h)
		}
		ended(t, r, fault.CLIHung)
		if took := time.Since(begin); took != 3*DefaultPingInterval+DefaultPingTimeout {
			t.Errorf("declared hung after %v", took)
		}
	})
}

// A CLI that says other things is busy; killing it would lose its work.
func TestBusyIsNotHung(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		script := fakecli.Script{
			Prompts: []fakecli.Prompt{{Turns: []fakecli.Turn{{Deltas: &fakecli.Deltas{Count: 200, Size: 1, Rate: 1}}}}},
			Faults: []fakecli.MethodFault{{Method: "ping", Times: 1, Fault: fakecli.Fault{
				Kind: fakecli.FaultDelay, DelayMS: int(4 * DefaultPingTimeout / time.Millisecond),
			}}},
		}
		r := start(t, inProcess(t, script, nil))
		for _, call := range [][2]string{
			{"session.create", `{"sessionId":"s","streaming":true}`},
			{"session.send", `{"sessionId":"s","prompt":"go"}`},
		} {
			if _, err := r.Conn().Call(t.Context(), call[0], []byte(call[1])); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(6 * DefaultPingTimeout)
		if err := r.Err(); err != nil {
			t.Errorf("a busy runtime was given up: %v", err)
		}
	})
}

func TestProtocolErrorEndsIt(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{fakecli.FaultGarbage, fakecli.FaultHugeHeader} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := start(t,
				spawned(t, fakecli.Script{Faults: methodFault("ping", fakecli.Fault{Kind: kind, Bytes: 1 << 40})}, ""))
			if _, err := r.Conn().Call(t.Context(), "ping", []byte("{}")); err == nil {
				t.Error("ping was answered")
			}
			ended(t, r, fault.CLIProtocolError)
		})
	}
}

func TestKillNamesTheCause(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"child": spawned(t, fakecli.Script{}, ""), "in process": inProcess(t, fakecli.Script{}, nil),
	} {
		r := start(t, cfg)
		cause := errors.New("it ate too much")
		r.Kill(cause)
		if f := ended(t, r, fault.CLIExited); !errors.Is(f, cause) {
			t.Errorf("%s: Err = %v", name, f)
		}
	}
}

// A CLI that ignores everything must not keep Stop from ending.
func TestStopIsForced(t *testing.T) {
	t.Parallel()
	cfg := spawned(t,
		fakecli.Script{Faults: methodFault("runtime.shutdown", fakecli.Fault{Kind: fakecli.FaultStopReading})}, "")
	cfg.Runner.(*Spawner).InputGrace = 100 * time.Millisecond
	r := start(t, cfg)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := r.Stop(ctx); err != nil {
		t.Errorf("Stop: %v", err)
	}
	if alive(r.Info().Peer.PID) {
		t.Error("the process is there after Stop")
	}
	ended(t, r, fault.RuntimeStopping)
}
