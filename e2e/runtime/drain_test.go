package runtime

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// served is a process of the program.
type served struct {
	*harness.Scripted
	cmd *exec.Cmd
	log *tellingLog
}

// tellingLog is a log that tells when the program listens.
type tellingLog struct {
	harness.LogBuffer
	once      sync.Once
	listening chan struct{}
}

// Write implements io.Writer.
func (l *tellingLog) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(`"msg":"listening"`)) {
		l.once.Do(func() { close(l.listening) })
	}
	return l.LogBuffer.Write(p)
}

// newServed starts the program itself on the real CLI. It has the fixture's model and client.
func newServed(t *testing.T, args []string, rules ...harness.Rule) *served {
	t.Helper()
	harness.SkipWithoutCLI(t)
	path, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	t.Cleanup(cancel)
	dir, err := os.MkdirTemp("", "e2e") // short: it is in a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	model, err := offlinemodel.Start(ctx, offlinemodel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = harness.Bounded(model.Close) })
	p := &served{log: &tellingLog{listening: make(chan struct{})}}
	p.cmd = exec.Command(path, append([]string{
		"serve", "--listen", "unix:" + filepath.Join(dir, "s"), "--cli", os.Getenv(harness.CLIEnv), "--home",
		filepath.Join(dir, "copilot"),
		"--user-home", dir, "--work-dir", dir, "--data-dir", filepath.Join(dir, "data"), "--no-login", "--log-format",
		"json",
	}, args...)...)
	p.cmd.Stderr = p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it has ended if the test went well
		_ = p.cmd.Wait()
		if t.Failed() {
			t.Logf("log of the program:\n%s", p.log.String())
		}
	})
	h := &harness.Host{Dir: dir, Home: filepath.Join(dir, "copilot"), Target: "unix:" + filepath.Join(dir, "s"),
		Model: model, Logs: new(harness.LogBuffer)}
	select {
	case <-p.log.listening:
	case <-ctx.Done():
		t.Fatal("the program does not listen")
	}
	if err := h.Warm(ctx); err != nil {
		t.Fatal(err)
	}
	p.Scripted = (&harness.Scripted{Fixture: harness.NewFixtureOn(t, h, harness.Echo)}).Play(rules)
	return p
}

// signal sends the program a signal.
func (p *served) signal(sig os.Signal) {
	p.T.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.T.Fatal(err)
	}
}

// exited waits for the program's end, and returns its code.
func (p *served) exited() int {
	p.T.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.cmd.Wait() // the code says it
	}()
	harness.Await(p.Scripted, done, "the program's end")
	return p.cmd.ProcessState.ExitCode()
}

// TestDrain: the turn that runs may end, its callbacks are answered, streams learn where to go on, and nothing new is
// begun.
func TestDrain(t *testing.T) {
	t.Parallel()
	p := newServed(t, []string{"--drain-grace", "30s"},
		harness.OnUser("work", harness.Call("works", nil)), harness.OnResult("works", harness.Say("{{tool_result}}")))
	works := harness.NewHold()
	s := p.Create(copilot.SessionOptions{Tools: []copilot.Tool{works.Tool("works", "worked")}})
	stream, err := p.Client.EventStreams().Subscribe(p.Ctx, &bridgev1.SubscribeRequest{
		Sessions: []*bridgev1.SessionCursor{{SessionId: s.ID(), Start: bridgev1.StreamStart_STREAM_START_END}},
	})
	if err == nil {
		_, err = stream.Recv() // the subscription is open
	}
	if err != nil {
		t.Fatal(err)
	}
	watch, err := healthv1.NewHealthClient(p.Client.Conn()).Watch(p.Ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	serving(t, watch)
	ended := p.GoTurn(s, "work")
	harness.Await(p.Scripted, works.Asked, "the tool's call")
	p.signal(syscall.SIGTERM)
	if second, err := watch.Recv(); err != nil || second.GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health is %v, %v", second, err)
	}
	for {
		frame, err := stream.Recv()
		if err != nil {
			t.Fatalf("the stream ended before it was told to: %v", err)
		}
		if g := frame.GetGoAway(); g != nil {
			if len(g.GetPositions()) != 1 || g.GetPositions()[0].GetPosition().GetSeq() == 0 ||
				g.GetGracePeriod().AsDuration() <= 0 {
				t.Errorf("the stream was told %v", g)
			}
			break
		}
	}
	_, err = p.Client.Sessions().Send(p.Ctx,
		&bridgev1.SendRequest{SessionId: s.ID(), Prompt: &bridgev1.Prompt{Text: "more"}})
	harness.WantError(t, err, codes.Unavailable, bridgev1.ErrorReason_ERROR_REASON_DRAINING)
	works.Release()
	if out := ended(); out.Text() != "worked" {
		t.Errorf("the turn ended as %v", out)
	}
	_ = stream.CloseSend()
	if err := p.Client.Close(); err != nil && status.Code(err) != codes.Canceled {
		t.Errorf("close: %v", err)
	}
	if code := p.exited(); code != 0 {
		t.Errorf("the program ended with %d", code)
	}
}

// serving waits until the server is ready, which it is a moment after its first CLI process.
func serving(t *testing.T, watch healthv1.Health_WatchClient) {
	t.Helper()
	for {
		state, err := watch.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if state.GetStatus() == healthv1.HealthCheckResponse_SERVING {
			return
		}
	}
}

// TestDrainIsBounded: a turn that does not end does not hold up the end.
func TestDrainIsBounded(t *testing.T) {
	t.Parallel()
	p := newServed(t, []string{"--drain-grace", "1s"},
		harness.Rule{When: harness.WhenUser("slow"), WaitFor: "never", Reply: harness.Steps(harness.Say("never"))})
	s := p.Create(copilot.SessionOptions{})
	p.Begin(s, "slow")
	p.Gate("never")
	begin := time.Now()
	p.signal(syscall.SIGTERM)
	if code := p.exited(); code != 0 {
		t.Errorf("the program ended with %d", code)
	}
	if took := time.Since(begin); took < time.Second {
		t.Errorf("the turn had %v", took)
	}
}

// TestSecondSignal: the server waits for no caller.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	p := newServed(t, []string{"--drain-grace", "10m"},
		harness.Rule{When: harness.WhenUser("slow"), WaitFor: "never", Reply: harness.Steps(harness.Say("never"))})
	s := p.Create(copilot.SessionOptions{})
	watch, err := healthv1.NewHealthClient(p.Client.Conn()).Watch(p.Ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	serving(t, watch)
	p.Begin(s, "slow")
	p.Gate("never")
	p.signal(syscall.SIGTERM)
	for {
		if state, err := watch.Recv(); err != nil || state.GetStatus() == healthv1.HealthCheckResponse_NOT_SERVING {
			break
		}
	}
	p.signal(syscall.SIGTERM)
	p.exited()
}
