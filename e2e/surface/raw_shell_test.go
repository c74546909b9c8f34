package surface

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/quirks"
	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// ran is what a command wrote and how it ended.
type ran struct {
	process, stdout, stderr string
	exit                    int64
}

func shell(st *harness.Scripted, s *copilot.Session, command string) (r ran) {
	st.T.Helper()
	stream, err := st.Client.Raw().RunShell(st.Ctx, &bridgev1.RunShellRequest{SessionId: s.ID(), Command: command})
	if err != nil {
		st.T.Fatal(err)
	}
	for {
		f, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return r
		}
		if err != nil {
			st.T.Fatalf("%q: %v", command, err)
		}
		switch f := f.GetFrame().(type) {
		case *bridgev1.RunShellResponse_ProcessId:
			r.process = f.ProcessId
		case *bridgev1.RunShellResponse_Stdout:
			r.stdout += f.Stdout
		case *bridgev1.RunShellResponse_Stderr:
			r.stderr += f.Stderr
		case *bridgev1.RunShellResponse_ExitCode:
			r.exit = f.ExitCode
		}
	}
}

func newShellFixture(t *testing.T) *harness.Scripted {
	t.Helper()
	st := harness.NewOwnScripted(t, harness.HostConfig{Raw: true})
	if st.Has(quirks.NoUserShells) {
		t.Skip("this CLI sends no events about a user's commands; TestRunShellNeedsEvents covers it")
	}
	return st
}

// TestRunShellNeedsEvents covers CLIs without the events: the call is refused and the command does not run.
func TestRunShellNeedsEvents(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{Raw: true})
	if !st.Has(quirks.NoUserShells) {
		t.Skip("this CLI sends the events")
	}
	s := st.Create(copilot.SessionOptions{})
	stream, err := st.Client.Raw().RunShell(st.Ctx, &bridgev1.RunShellRequest{SessionId: s.ID(), Command: "echo > ran"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	harness.WantError(t, err, codes.Unimplemented, bridgev1.ErrorReason_ERROR_REASON_METHOD_UNKNOWN)
	if _, err := os.Stat(filepath.Join(st.Dir, "ran")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the command ran: %v", err)
	}
}

func TestRunShell(t *testing.T) {
	t.Parallel()
	st := newShellFixture(t)
	s, other := st.Create(copilot.SessionOptions{}), st.Create(copilot.SessionOptions{})
	// Each caller gets the output of its command.
	both := make(chan ran, 2)
	for _, command := range []string{"echo one; echo wrong >&2; pwd; exit 3", "sleep 0.2; echo two"} {
		go func() {
			both <- shell(st, map[bool]*copilot.Session{true: s, false: other}[strings.Contains(command, "one")],
				command)
		}()
	}
	for range 2 {
		got := <-both
		switch {
		case got.process == "":
			t.Errorf("no process id: %+v", got)
		case strings.Contains(got.stdout, "one"):
			if got.stdout != "one\n"+st.Dir+"\n" || got.stderr != "wrong\n" || got.exit != 3 {
				t.Errorf("the first: %+v", got)
			}
		case got.stdout != "two\n" || got.exit != 0:
			t.Errorf("the second: %+v", got)
		}
	}
}

// A caller who goes ends its command.
func TestRunShellCancelled(t *testing.T) {
	t.Parallel()
	st := newShellFixture(t)
	s := st.Create(copilot.SessionOptions{})
	ctx, cancel := context.WithCancel(st.Ctx)
	defer cancel()
	stream, err := st.Client.Raw().RunShell(ctx, &bridgev1.RunShellRequest{
		SessionId: s.ID(), Command: "trap 'echo > ended; exit' TERM; echo > began; while :; do sleep 0.05; done",
	})
	if err != nil {
		t.Fatal(err)
	}
	if f, err := stream.Recv(); err != nil || f.GetProcessId() == "" {
		t.Fatalf("the first frame is %v, %v", f, err)
	}
	file(st, "began")
	cancel()
	file(st, "ended")
}

// file waits for a file in the working directory, of which nothing else tells.
func file(st *harness.Scripted, name string) {
	st.T.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(filepath.Join(st.Dir, name)); err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-st.Ctx.Done():
			st.T.Fatalf("there is no file %q", name)
		}
	}
}
