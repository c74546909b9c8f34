package process_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/process"
)

// watch returns a handle on a process that stays valid when its pid is reused.
func watch(t *testing.T, pid int) (fd int) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("pidfd of %d: %v", pid, err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// gone tells whether the process ends in time.
func gone(fd int, within time.Duration) bool {
	deadline := time.Now().Add(within)
	for {
		left := max(0, time.Until(deadline).Milliseconds())
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(left))
		if !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}

func pidLine(t *testing.T, r *bufio.Reader) int {
	t.Helper()
	pid, err := strconv.Atoi(readLine(t, r))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestOrphansAreEnded(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*process.Process){
		"killed":  func(p *process.Process) { _ = unix.Kill(p.PID(), unix.SIGKILL) },
		"orderly": func(p *process.Process) { _ = p.CloseWrite() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := roleOptions("litter")
			var cleaned atomic.Int64
			o.Cleanup = func(pid int, exit process.Exit) {
				// The pid is still taken: kill(0) finds the zombie.
				if unix.Kill(pid, 0) == nil && exit.Orphans == 2 {
					cleaned.Store(int64(pid))
				}
			}
			p, _ := start(t, o)
			r := bufio.NewReader(p)
			first, second := watch(t, pidLine(t, r)), watch(t, pidLine(t, r))
			end(p)
			if _, err := io.Copy(io.Discard, r); err != nil {
				t.Errorf("stdout did not end in EOF: %v", err)
			}
			<-p.Done()
			if !gone(first, 0) || !gone(second, 0) {
				t.Error("an orphan is alive after Done")
			}
			if e := p.Exit(); e.Orphans != 2 {
				t.Errorf("Exit = %+v, want 2 orphans", e)
			}
			if cleaned.Load() != int64(p.PID()) {
				t.Error("Cleanup did not run while the pid was reserved")
			}
		})
	}
}

// killedParent starts a parent with one child, kills it and returns handles on
// the child and on what else the child's output named.
func killedParent(t *testing.T, child string, more int) []int {
	t.Helper()
	o := roleOptions("parent", "PROCESS_TEST_CHILD="+child)
	// process.Start is not usable here: its clean-up would find the grandchildren by the marker, and the test
	// needs them to stay.
	cmd := exec.Command(o.Path)
	cmd.Env = o.Env
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := bufio.NewReader(out)
	fds := []int{watch(t, pidLine(t, r))}
	for range more {
		fds = append(fds, watch(t, pidLine(t, r)))
	}
	if more == 0 {
		readLine(t, r) // "ready"
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return fds
}

// The child ignores the end of its input, so only the signal can end it.
func TestChildDiesWithItsParent(t *testing.T) {
	t.Parallel()
	if fds := killedParent(t, "deaf", 0); !gone(fds[0], 5*time.Second) {
		t.Error("the child outlived its parent")
	}
}

func TestSweepAbandoned(t *testing.T) {
	t.Parallel()
	for _, child := range []string{"litter", "stubborn"} {
		more := map[string]int{"litter": 2}[child]
		fds := killedParent(t, child, more)
		// Without a sweep they would run for minutes. The test does not check the count: another bridge on this
		// machine may sweep at the same time.
		process.SweepAbandoned()
		for _, fd := range fds {
			if !gone(fd, 5*time.Second) {
				t.Errorf("%s: a process survived the sweep", child)
			}
		}
	}
}

// A server that is root has CLI processes of other users, which its successor ends too.
func TestSweepAsRoot(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root may start a process of another user")
	}
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	inode := strings.TrimSuffix(strings.TrimPrefix(namespace, "pid:["), "]")
	cmd := exec.Command("sleep", "60")
	// Its owner has our pid but began at another time: it is gone.
	cmd.Env = []string{fmt.Sprintf("%s=%s-%d-1-1", process.MarkerEnv, inode, os.Getpid())}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fd := watch(t, cmd.Process.Pid)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	process.SweepAbandoned()
	if !gone(fd, 5*time.Second) {
		t.Error("a process of another user survived the sweep")
	}
}

// A living owner's processes must survive the sweep of another bridge.
func TestSweepAbandonedSparesOthers(t *testing.T) {
	t.Parallel()
	p, _ := start(t, roleOptions("echo"))
	process.SweepAbandoned()
	if _, err := io.WriteString(p, "still here\n"); err != nil {
		t.Fatal(err)
	}
	if got := readLine(t, bufio.NewReader(p)); got != "still here" {
		t.Errorf("echo = %q", got)
	}
}

// The child's ends of the pipes must block as any program expects, while ours
// must not, or every idle runtime would cost threads.
func TestPipesArePollable(t *testing.T) {
	t.Parallel()
	p, _ := start(t, roleOptions("echo"))
	flags, err := os.ReadFile("/proc/" + strconv.Itoa(p.PID()) + "/fdinfo/0")
	if err != nil {
		t.Fatal(err)
	}
	var pos, mode int64
	if _, err := fmt.Sscanf(string(flags), "pos:\t%d\nflags:\t%o", &pos, &mode); err != nil {
		t.Fatalf("fdinfo %q: %v", flags, err)
	}
	if mode&unix.O_NONBLOCK != 0 {
		t.Errorf("the child's stdin is non-blocking: %#o", mode)
	}
}
