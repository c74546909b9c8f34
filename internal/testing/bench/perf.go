package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// The names of sums among the counts of systemCalls.
const (
	allCalls   = "raw_syscalls:sys_enter"
	callPrefix = "syscalls:sys_enter_"
	futexWakes = "futex wakes"
)

// futexWake is the operation FUTEX_WAKE|FUTEX_PRIVATE_FLAG.
const futexWake = 129

// callGroup is a column of system calls.
type callGroup struct {
	title string
	calls []string
}

var callGroups = []callGroup{
	{"reads", []string{"read", "pread64"}},
	{"writes", []string{"write", "writev", "pwrite64", "sendmsg"}},
	{"files opened, closed, changed", []string{"openat", "close", "fcntl", "newfstatat", "newfstat", "mkdirat",
		"unlinkat", "renameat", "ftruncate"}},
	{"fsync", []string{"fsync"}},
	{"epoll", []string{"epoll_pwait", "epoll_ctl"}},
	{"futex", []string{"futex"}},
	{"sleep", []string{"nanosleep"}},
}

func (g *callGroup) sum(calls map[string]float64) (sum float64) {
	for _, name := range g.calls {
		sum += calls[callPrefix+name]
	}
	return sum
}

// systemCalls counts the system calls of a process while f runs.
func systemCalls(ctx context.Context, pid int, f func() error) (map[string]float64, error) {
	p, err := startPerf(ctx, pid)
	if err != nil {
		return nil, fmt.Errorf("perf, which counts system calls: %w", err)
	}
	err = p.command("enable")
	if err == nil {
		err = f()
	}
	if err == nil {
		err = p.command("disable")
	}
	text, stopped := p.stop()
	if err = errors.Join(err, stopped); err != nil {
		return nil, fmt.Errorf("perf, which counts system calls: %w: %s", err, text)
	}
	return parseCounts(text)
}

// perf is a perf stat that is attached to a process.
type perf struct {
	cmd    *exec.Cmd
	ctl    *os.File // to perf
	ack    *bufio.Reader
	ackEnd *os.File
	out    bytes.Buffer
}

// startPerf attaches to a process. Counting begins with the command enable.
func startPerf(ctx context.Context, pid int) (*perf, error) {
	theirs, ctl, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ack, theirAck, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirs.Close(), ctl.Close())
	}
	args := []string{"stat", "-x", ",", "-D", "-1", "--control", "fd:3,4", "-p", strconv.Itoa(pid), "-e", allCalls}
	for _, g := range callGroups {
		for _, name := range g.calls {
			args = append(args, "-e", callPrefix+name)
		}
	}
	// The second event of the same name has the filter.
	args = append(args, "-e", callPrefix+"futex", "--filter", fmt.Sprintf("op==%d", futexWake))
	p := &perf{cmd: exec.CommandContext(ctx, "perf", args...), ctl: ctl, ack: bufio.NewReader(ack), ackEnd: ack}
	p.cmd.ExtraFiles = []*os.File{theirs, theirAck}
	p.cmd.Stderr = &p.out
	err = p.cmd.Start()
	if closed := errors.Join(theirs.Close(), theirAck.Close()); err == nil {
		err = closed
	}
	if err != nil {
		return nil, errors.Join(err, ctl.Close(), ack.Close())
	}
	return p, nil
}

// command has perf do something, and returns when it has.
func (p *perf) command(name string) error {
	if _, err := io.WriteString(p.ctl, name+"\n"); err != nil {
		return err
	}
	_, err := p.ack.ReadString('\n')
	return err
}

// stop ends perf and returns what it has written.
func (p *perf) stop() ([]byte, error) {
	err := p.cmd.Process.Signal(syscall.SIGINT)
	if wait := p.cmd.Wait(); wait != nil && p.cmd.ProcessState.ExitCode() > 0 {
		err = errors.Join(err, wait)
	}
	return p.out.Bytes(), errors.Join(err, p.ctl.Close(), p.ackEnd.Close())
}

// parseCounts reads the lines of perf stat -x: a count, a unit, the event.
func parseCounts(text []byte) (map[string]float64, error) {
	out := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSpace(line), ",")
		if len(fields) < 3 || !strings.Contains(fields[2], ":sys_enter") {
			continue
		}
		n, err := strconv.ParseFloat(fields[0], 64)
		if err != nil {
			return nil, fmt.Errorf("perf counted no %s: %q", fields[2], fields[0])
		}
		name := fields[2]
		if _, again := out[name]; again {
			name = futexWakes
		}
		out[name] = n
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("perf counted nothing: %q", text)
	}
	return out, nil
}

// contextSwitches returns how often the threads of a process have left a processor.
func contextSwitches(pid int) (sum float64, err error) {
	threads, err := procfs.AllThreads(pid)
	if err != nil {
		return 0, err
	}
	for _, t := range threads {
		if status, err := t.NewStatus(); err == nil { // else the thread has ended
			sum += float64(status.TotalCtxtSwitches())
		}
	}
	return sum, nil
}

// adminPage returns a page of the server's admin listener.
func (b *bridge) adminPage(ctx context.Context, page string) ([]byte, error) {
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", b.admin())
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+page, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", page, response.Status, text)
	}
	return text, err
}

// goroutineStarts traces the server for a time, and returns how often a goroutine began to run.
func (b *bridge) goroutineStarts(ctx context.Context, d time.Duration) (int, error) {
	trace, err := b.adminPage(ctx, fmt.Sprintf("/debug/pprof/trace?seconds=%g", d.Seconds()))
	if err != nil {
		return 0, err
	}
	name := filepath.Join(b.dir, "trace")
	if err := os.WriteFile(name, trace, 0o600); err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, "go", "tool", "trace", "-d=parsed", name)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	starts := 0
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if bytes.Contains(lines.Bytes(), []byte("Runnable->Running")) {
			starts++
		}
	}
	return starts, errors.Join(lines.Err(), cmd.Wait())
}
