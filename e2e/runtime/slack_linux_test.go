package runtime

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// TestTimerSlack: the server's threads are woken up to 1 ms late, and those of the CLI as the kernel does by default.
func TestTimerSlack(t *testing.T) {
	t.Parallel()
	if own, err := slackOf(os.Getpid()); err != nil || own != "50000" {
		t.Skipf("this process has a timer slack of %q, %v", own, err)
	}
	st := harness.NewScripted(t)
	d := harness.NewDaemon(st)
	open(d, "hello", nil)
	list, err := d.Client.Runtimes().ListRuntimes(d.Ctx, &bridgev1.ListRuntimesRequest{})
	if err != nil || len(list.GetRuntimes()) == 0 {
		t.Fatal(list, err)
	}
	cli := int(list.GetRuntimes()[0].GetPid())
	for pid, want := range map[int]string{d.Cmd.Process.Pid: "1000000", cli: "50000"} {
		switch got, err := slackOf(pid); {
		case errors.Is(err, fs.ErrPermission):
			t.Skip("to read it of another process needs CAP_SYS_NICE")
		case err != nil || got != want:
			t.Errorf("process %d has %q ns, %v; want %s", pid, got, err, want)
		}
	}
}

// slackOf returns the timer slack of a process, in nanoseconds.
func slackOf(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/timerslack_ns", pid))
	return strings.TrimSpace(string(text)), err
}
