package e2e

import (
	"bytes"
	"context"
	"errors"
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
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// programDir is where program puts what it builds; it ends with all tests.
var programDir string

// program builds the program, once.
var program = sync.OnceValues(func() (path string, err error) {
	if programDir, err = os.MkdirTemp("", "e2e"); err != nil {
		return "", err
	}
	path = filepath.Join(programDir, "copilot-grpc")
	out, err := exec.Command("go", "build", "-o", path, "../cmd/copilot-grpc").CombinedOutput()
	if err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
})

// served is a process of the program.
type served struct {
	*stage
	cmd *exec.Cmd
	log *tellingLog
}

// tellingLog is a log that tells when the program listens.
type tellingLog struct {
	logBuffer
	once      sync.Once
	listening chan struct{}
}

// Write implements io.Writer.
func (l *tellingLog) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(`"msg":"listening"`)) {
		l.once.Do(func() { close(l.listening) })
	}
	return l.logBuffer.Write(p)
}

// newServed starts the program itself on the real CLI. The stage's model and client are of it.
func newServed(t *testing.T, args []string, rules ...rule) *served {
	t.Helper()
	skipWithoutCLI(t)
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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
	t.Cleanup(func() { _ = bounded(model.Close) })
	p := &served{log: &tellingLog{listening: make(chan struct{})}}
	p.cmd = exec.Command(path, append([]string{
		"serve", "--listen", "unix:" + filepath.Join(dir, "s"), "--cli", os.Getenv(cliEnv), "--home", filepath.Join(dir, "copilot"),
		"--user-home", dir, "--work-dir", dir, "--data-dir", filepath.Join(dir, "data"), "--no-login", "--log-format", "json",
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
	h := &host{dir: dir, home: filepath.Join(dir, "copilot"), target: "unix:" + filepath.Join(dir, "s"), model: model, logs: new(logBuffer)}
	select {
	case <-p.log.listening:
	case <-ctx.Done():
		t.Fatal("the program does not listen")
	}
	if err := h.warm(ctx); err != nil {
		t.Fatal(err)
	}
	p.stage = (&stage{rig: newRigOn(t, h, echo)}).play(rules)
	return p
}

// signal sends the program a signal.
func (p *served) signal(sig os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// exited waits for the program's end, and returns its code.
func (p *served) exited() int {
	p.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.cmd.Wait() // the code says it
	}()
	await(p.stage, done, "the program's end")
	return p.cmd.ProcessState.ExitCode()
}

// TestDrain: the turn that runs may end, its callbacks are answered, streams are told
// where to go on, and nothing new is begun.
func TestDrain(t *testing.T) {
	t.Parallel()
	p := newServed(t, []string{"--drain-grace", "30s"},
		onUser("work", call("works", nil)), onResult("works", say("{{tool_result}}")))
	works := newHold()
	s := p.create(copilot.SessionOptions{Tools: []copilot.Tool{works.tool("works", "worked")}})
	stream, err := p.client.EventStreams().Subscribe(p.ctx, &bridgev1.SubscribeRequest{
		Sessions: []*bridgev1.SessionCursor{{SessionId: s.ID(), Start: bridgev1.Start_START_TAIL}},
	})
	if err != nil {
		t.Fatal(err)
	}
	watch, err := healthv1.NewHealthClient(p.client.Conn()).Watch(p.ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	serving(t, watch)
	ended := p.goTurn(s, "work")
	await(p.stage, works.asked, "the tool's call")
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
			if len(g.GetPositions()) != 1 || g.GetPositions()[0].GetPosition().GetSeq() == 0 || g.GetAfter().AsDuration() <= 0 {
				t.Errorf("the stream was told %v", g)
			}
			break
		}
	}
	_, err = p.client.Sessions().Send(p.ctx, &bridgev1.SendRequest{SessionId: s.ID(), Prompt: &bridgev1.Prompt{Text: "more"}})
	wantError(t, err, codes.Unavailable, bridgev1.ErrorReason_ERROR_REASON_DRAINING)
	works.release()
	if out := ended(); out.GetText() != "worked" {
		t.Errorf("the turn ended as %v", out)
	}
	_ = stream.CloseSend()
	if err := p.client.Close(); err != nil && status.Code(err) != codes.Canceled {
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
	p := newServed(t, []string{"--drain-grace", "1s"}, rule{When: whenUser("slow"), WaitFor: "never", Reply: steps(say("never"))})
	s := p.create(copilot.SessionOptions{})
	p.begin(s, "slow")
	p.gate("never")
	begin := time.Now()
	p.signal(syscall.SIGTERM)
	if code := p.exited(); code != 0 {
		t.Errorf("the program ended with %d", code)
	}
	if took := time.Since(begin); took < time.Second {
		t.Errorf("the turn had %v", took)
	}
}

// TestSecondSignal: it is not waited for anybody.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	p := newServed(t, []string{"--drain-grace", "10m"}, rule{When: whenUser("slow"), WaitFor: "never", Reply: steps(say("never"))})
	s := p.create(copilot.SessionOptions{})
	watch, err := healthv1.NewHealthClient(p.client.Conn()).Watch(p.ctx, &healthv1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	serving(t, watch)
	p.begin(s, "slow")
	p.gate("never")
	p.signal(syscall.SIGTERM)
	for {
		if state, err := watch.Recv(); err != nil || state.GetStatus() == healthv1.HealthCheckResponse_NOT_SERVING {
			break
		}
	}
	p.signal(syscall.SIGTERM)
	p.exited()
}
