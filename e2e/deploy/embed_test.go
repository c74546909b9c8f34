package deploy

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// TestEmbed builds docs/examples/embed, a separate module that serves the bridge from its grpc.Server, and uses it: a
// turn with the real CLI, a stream of its events, an error with its reason, the program's own interceptor, an orderly
// end.
func TestEmbed(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	path, socket := filepath.Join(r.Dir, "embed"), filepath.Join(r.Dir, "s")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, ".")
	build.Dir = "../../docs/examples/embed"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	log := &firstWrite{happened: make(chan struct{})}
	program := exec.CommandContext(r.Ctx, path, socket, filepath.Join(r.Dir, "data"))
	program.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + r.Dir, "XDG_CACHE_HOME=" + cache,
		harness.CLIEnv + "=" + os.Getenv(harness.CLIEnv),
	}
	program.Stdout, program.Stderr = log, log
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	var exit error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		exit = program.Wait()
	}()
	defer func() {
		_ = program.Process.Kill()
		<-ended
		if t.Failed() {
			t.Logf("log of the program:\n%s", log.bytes.String())
		}
	}()

	select {
	case <-log.happened: // it listens
	case <-ended:
		t.Fatalf("the program ended: %v", exit)
	}
	c, err := copilot.Dial(r.Ctx, "unix:"+socket)
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	defer func() { _ = c.Close() }()
	s, err := c.CreateSession(r.Ctx, r.Options())
	if err != nil {
		t.Fatalf("create session: %v", err)
	}
	out, err := s.SendAndWait(r.Ctx, "hello")
	if err != nil || out.Text() != "You said: hello" {
		t.Errorf("turn: %+v, %v", out, err)
	}
	var types []string
	for event, err := range s.History(r.Ctx) {
		if err != nil {
			t.Fatalf("history: %v", err)
		}
		types = append(types, event.GetEvent().GetEventType())
	}
	if list := strings.Join(types, " "); !strings.Contains(list, "user.message") ||
		!strings.Contains(list, "assistant.message") {
		t.Errorf("history: %s", list)
	}
	_, err = c.Session("no-such-session").Get(r.Ctx)
	if status.Code(err) != codes.NotFound ||
		!copilot.IsReason(err, bridgev1.ErrorReason_ERROR_REASON_SESSION_NOT_FOUND) {
		t.Errorf("an unknown session: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := program.Process.Signal(syscall.SIGTERM); err != nil { // the signal of process managers
		t.Fatal(err)
	}
	if <-ended; exit != nil {
		t.Errorf("end of the program: %v", exit)
	}
	if want := "/copilot.bridge.v1.SessionService/GetSession by process"; !strings.Contains(log.bytes.String(), want) {
		t.Errorf("the program's interceptor did not log %q", want)
	}
}

// firstWrite is a buffer that tells of the first write. It is read when the writer has ended.
type firstWrite struct {
	bytes    bytes.Buffer
	once     sync.Once
	happened chan struct{}
}

// Write implements io.Writer.
func (w *firstWrite) Write(p []byte) (int, error) {
	w.once.Do(func() { close(w.happened) })
	return w.bytes.Write(p)
}
