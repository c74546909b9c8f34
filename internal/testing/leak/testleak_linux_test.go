package leak

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// scenario is the environment variable that makes the test binary play a package
// whose tests leave something behind.
const scenario = "TESTLEAK_SCENARIO"

func TestMain(m *testing.M) {
	if os.Getenv(scenario) == "ignored" {
		Main(m, goleak.IgnoreAnyFunction("github.com/copilot-grpc/copilot-grpc/internal/testing/leak.waitForever"))
	}
	Main(m)
}

// waitForever is the goroutine that scenarios leave behind.
func waitForever() { select {} }

// TestScenario is not a test: it is what the re-executed binary runs.
func TestScenario(t *testing.T) {
	switch os.Getenv(scenario) {
	case "":
		t.Skip("only for the re-executed binary")
	case "clean":
		if err := exec.Command("true").Run(); err != nil {
			t.Fatal(err)
		}
	case "goroutine", "ignored":
		go waitForever()
	case "child":
		startChild(t, "sleep", "60")
	case "zombie":
		awaitZombie(t, startChild(t, "true"))
	case "failing":
		startChild(t, "true")
		t.Fatal("fails by itself")
	}
}

// startChild starts a child without a Wait. It dies with its parent, so that the scenario leaves nothing on the
// machine.
func startChild(t *testing.T, name string, args ...string) int {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// awaitZombie returns when the child has ended, without reaping it.
func awaitZombie(t *testing.T, pid int) {
	t.Helper()
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			return
		}
		if !errors.Is(err, unix.EINTR) {
			t.Fatalf("waiting for process %d: %v", pid, err)
		}
	}
}

// TestMainFailsOnLeaks runs this binary again as a package that leaks, and looks at
// its exit code and words: the gate as its users meet it.
func TestMainFailsOnLeaks(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat(filepath.Join(procfs.DefaultMountPoint, "self", "stat")); err != nil {
		t.Skipf("no proc file system: %v", err)
	}
	tests := []struct {
		scenario string
		code     int
		says     string
		not      string
	}{
		{scenario: "clean", code: 0, not: "leak:"},
		{scenario: "ignored", code: 0, not: "leak:"},
		{scenario: "goroutine", code: 1, says: "unexpected goroutines"},
		{scenario: "child", code: 1, says: `child processes left behind: "sleep" (pid`},
		{scenario: "zombie", code: 1, says: "zombie)"},
		{scenario: "failing", code: 1, says: "fails by itself", not: "leak:"},
	}
	for _, tt := range tests {
		t.Run(tt.scenario, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0], "-test.run=^TestScenario$")
			cmd.Env = append(os.Environ(), scenario+"="+tt.scenario)
			out, err := cmd.CombinedOutput()
			if code := exitCode(err); code != tt.code {
				t.Errorf("exit code %d, want %d: %s", code, tt.code, out)
			}
			if !strings.Contains(string(out), tt.says) {
				t.Errorf("output %q lacks %q", out, tt.says)
			}
			if tt.not != "" && strings.Contains(string(out), tt.not) {
				t.Errorf("output %q holds %q", out, tt.not)
			}
		})
	}
}

// exitCode is that of a finished command, or -1 if it did not get that far.
func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

func TestSettleWaitsForWhatIsEnding(t *testing.T) {
	t.Parallel()
	answers := [][]procfs.ProcStat{{{PID: 1}}, {{PID: 1}}, nil}
	asked := 0
	left, err := settle(time.Minute, func() ([]procfs.ProcStat, error) {
		asked++
		return answers[asked-1], nil
	})
	if err != nil || left != nil || asked != len(answers) {
		t.Errorf("got %v, %v after %d questions, want nothing left after %d", left, err, asked, len(answers))
	}
}

func TestSettleGivesUp(t *testing.T) {
	t.Parallel()
	want := procfs.ProcStat{PID: 7, Comm: "sh", State: "S"}
	left, err := settle(0, func() ([]procfs.ProcStat, error) { return []procfs.ProcStat{want}, nil })
	if err != nil || !slices.Equal(left, []procfs.ProcStat{want}) {
		t.Errorf("got %v, %v, want %v", left, err, want)
	}
	broken := errors.New("no access")
	if _, err := settle(time.Minute, func() ([]procfs.ProcStat, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

func TestChildrenReadsOnlyOnesOwn(t *testing.T) {
	t.Parallel()
	proc := t.TempDir()
	for pid, head := range map[int]string{
		10: "(sh) S 5",
		11: "(a) b (c) Z 5",
		12: "(other) R 6",
	} {
		dir := filepath.Join(proc, strconv.Itoa(pid))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("%d %s%s\n", pid, head, strings.Repeat(" 0", 48))
		if err := os.WriteFile(filepath.Join(dir, "stat"), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := procfs.NewFS(proc)
	if err != nil {
		t.Fatal(err)
	}
	got, err := children(tree, 5)
	if err != nil {
		t.Fatal(err)
	}
	if text := describe(got); text != `"sh" (pid 10, running), "a) b (c" (pid 11, zombie)` {
		t.Errorf("described as %s", text)
	}
}
