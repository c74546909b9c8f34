package e2e

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// ran is what a command wrote and how it ended.
type ran struct {
	process, stdout, stderr string
	exit                    int64
}

func (st *stage) shell(s *copilot.Session, command string) (r ran) {
	st.t.Helper()
	stream, err := st.client.Raw().RunShell(st.ctx, &bridgev1.RunShellRequest{SessionId: s.ID(), Command: command})
	if err != nil {
		st.t.Fatal(err)
	}
	for {
		f, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return r
		}
		if err != nil {
			st.t.Fatalf("%q: %v", command, err)
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

func newShellStage(t *testing.T) *stage {
	t.Helper()
	return newOwnStage(t, hostConfig{raw: true})
}

func TestRunShell(t *testing.T) {
	t.Parallel()
	st := newShellStage(t)
	s, other := st.create(copilot.SessionOptions{}), st.create(copilot.SessionOptions{})
	// Each caller gets the output of its own command.
	both := make(chan ran, 2)
	for _, command := range []string{"echo one; echo wrong >&2; pwd; exit 3", "sleep 0.2; echo two"} {
		go func() {
			both <- st.shell(map[bool]*copilot.Session{true: s, false: other}[strings.Contains(command, "one")], command)
		}()
	}
	for range 2 {
		got := <-both
		switch {
		case got.process == "":
			t.Errorf("no process id: %+v", got)
		case strings.Contains(got.stdout, "one"):
			if got.stdout != "one\n"+st.dir+"\n" || got.stderr != "wrong\n" || got.exit != 3 {
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
	st := newShellStage(t)
	s := st.create(copilot.SessionOptions{})
	ctx, cancel := context.WithCancel(st.ctx)
	defer cancel()
	stream, err := st.client.Raw().RunShell(ctx, &bridgev1.RunShellRequest{
		SessionId: s.ID(), Command: "trap 'echo > ended; exit' TERM; echo > began; while :; do sleep 0.05; done",
	})
	if err != nil {
		t.Fatal(err)
	}
	if f, err := stream.Recv(); err != nil || f.GetProcessId() == "" {
		t.Fatalf("the first frame is %v, %v", f, err)
	}
	st.file("began")
	cancel()
	st.file("ended")
}

// file waits for a file in the working directory, of which nothing else tells.
func (st *stage) file(name string) {
	st.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(filepath.Join(st.dir, name)); err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-st.ctx.Done():
			st.t.Fatalf("there is no file %q", name)
		}
	}
}
