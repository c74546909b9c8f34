package app

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// testTimeout is far more than anything here takes.
const testTimeout = 30 * time.Second

// fake returns a runner whose CLI follows the script.
func fake(t *testing.T, script fakecli.Script) runtime.Runner {
	t.Helper()
	cli := fakecli.New(fakecli.Options{Script: script})
	t.Cleanup(cli.Close)
	return runtime.InProcess(func(context.Context, runtime.Spec) (io.ReadWriteCloser,
		error) {
		return cli.Connect(), nil
	})
}

// shortDir returns a directory whose path is short enough for a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "cg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// running is an App that runs.
type running struct {
	*App
	stop  context.CancelFunc
	ended chan error
}

// start runs an App until the test ends.
func start(t *testing.T, c Config, options ...Option) *running {
	t.Helper()
	if c.Listen == nil {
		c.Listen = []string{"unix:" + filepath.Join(shortDir(t), "s.sock")}
	}
	a, err := New(t.Context(), c, options...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &running{App: a, stop: cancel, ended: make(chan error, 1)}
	go func() { r.ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if r.ended != nil {
			r.end(t)
		}
	})
	return r
}

// end waits for the end.
func (r *running) end(t *testing.T) {
	t.Helper()
	select {
	case err := <-r.ended:
		if err != nil {
			t.Errorf("Run: %v", err)
		}
	case <-time.After(testTimeout):
		t.Error("Run has not returned")
	}
	r.ended = nil
}

// dial connects a client.
func (r *running) dial(t *testing.T) (context.Context, *copilot.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	c, err := copilot.Dial(ctx, r.Target(), copilot.WithToken(r.Token()), copilot.WithoutReconnect())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return ctx, c
}

// subscribe opens a stream that stays open until the server ends it, and waits for its
// first frame.
func subscribe(
	ctx context.Context, t *testing.T, c *copilot.Client, id string,
) grpc.ServerStreamingClient[bridgev1.SubscribeResponse] {
	t.Helper()
	stream, err := c.EventStreams().Subscribe(ctx, &bridgev1.SubscribeRequest{
		Sessions: []*bridgev1.SessionCursor{{SessionId: id}},
	})
	if err == nil {
		_, err = stream.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// A session over a socket, from a client's creation of it to the server's goodbye.
func TestApp(t *testing.T) {
	t.Parallel()
	r := start(t, Config{Version: "v1"}, WithRunner(fake(t, fakecli.Script{
		Prompts: []fakecli.Prompt{{Match: "weather", Turns: []fakecli.Turn{
			{Text: "I look.", Tools: []fakecli.Tool{{Name: "weather", Arguments: []byte(`{"city":"Oslo"}`)}}},
			{Text: "Rain."},
		}}},
	})))
	ctx, c := r.dial(t)
	info, err := c.ServerInfo(ctx)
	if err != nil || info.GetVersion() != "v1" {
		t.Errorf("info %v, %v", info, err)
	}
	asked := make(chan string, 1)
	s, err := c.CreateSession(ctx, copilot.SessionOptions{
		Tools: []copilot.Tool{copilot.NewTool("weather", "tells it",
			func(_ context.Context, at struct{ City string }) (string, error) {
				asked <- at.City
				return "rain", nil
			})},
		OnPermission: copilot.ApproveAll,
	})
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.SendAndWait(ctx, "the weather?")
	if err != nil || out.Err() != nil || out.Text() != "Rain." {
		t.Fatalf("outcome %v, %v", out, err)
	}
	if city := <-asked; city != "Oslo" {
		t.Errorf("the tool was called for %q", city)
	}
	var types []string
	for ev, err := range s.Events(ctx, copilot.OfTypes("session.start", "user.message", "session.idle")) {
		if err != nil {
			t.Fatal(err)
		}
		types = append(types, ev.GetEvent().GetEventType())
		if ev.GetEvent().GetEventType() == "session.idle" {
			break
		}
	}
	if got := strings.Join(types, " "); got != "session.start user.message session.idle" {
		t.Errorf("events %q", got)
	}
}

// Streams that are open when the server begins to drain get a notice, and end in time.
func TestAppDrains(t *testing.T) {
	t.Parallel()
	const grace = 100 * time.Millisecond
	r := start(t, Config{DrainGrace: grace}, WithRunner(fake(t, fakecli.Script{})))
	ctx, c := r.dial(t)
	s, err := c.CreateSession(ctx, copilot.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stream := subscribe(ctx, t, c, s.ID())
	var goAway bool
	r.stop()
	for {
		frame, err := stream.Recv()
		if err != nil {
			if !errors.Is(err, io.EOF) && status.Code(err) != codes.Unavailable {
				t.Errorf("the stream ended with %v", err)
			}
			break
		}
		if bye := frame.GetGoAway(); bye != nil {
			goAway = true
			if after := bye.GetGracePeriod().AsDuration(); after != grace {
				t.Errorf("told to go within %v, not %v", after, grace)
			}
		}
	}
	if !goAway {
		t.Error("no word of goodbye")
	}
	r.end(t)
	if path, _ := strings.CutPrefix(r.Target(), unixPrefix); !gone(path) {
		t.Errorf("%q is still there", path)
	}
}

// Abort does not wait for streams.
func TestAppAborts(t *testing.T) {
	t.Parallel()
	r := start(t, Config{DrainGrace: time.Hour}, WithRunner(fake(t, fakecli.Script{})))
	ctx, c := r.dial(t)
	s, err := c.CreateSession(ctx, copilot.SessionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	stream := subscribe(ctx, t, c, s.ID())
	r.stop()
	r.Abort()
	for err == nil {
		_, err = stream.Recv()
	}
	if ctx.Err() != nil {
		t.Errorf("the stream was not cut off: %v", err)
	}
	r.end(t)
}

// Abort ends an App that was not told to stop: a replica that has lost its lease must not stay.
func TestAbortEnds(t *testing.T) {
	t.Parallel()
	r := start(t, Config{}, WithRunner(fake(t, fakecli.Script{})))
	r.dial(t)
	r.Abort()
	r.end(t)
}

// An App that cannot be built leaves nothing behind.
func TestNewUnwinds(t *testing.T) {
	t.Parallel()
	var lc net.ListenConfig
	taken, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	path := filepath.Join(shortDir(t), "s.sock")
	a, err := New(t.Context(), Config{
		Listen: []string{"unix:" + path, taken.Addr().String()}, OfflineModel: OfflineDefault,
	})
	if err == nil || a != nil || !strings.Contains(err.Error(), "another one with --listen") {
		t.Fatalf("New: %v, %v", a, err)
	}
	if !gone(path) {
		t.Errorf("%q is still there", path)
	}
}

func TestCloseWithoutRun(t *testing.T) {
	t.Parallel()
	path := filepath.Join(shortDir(t), "s.sock")
	a, err := New(t.Context(), Config{Listen: []string{"unix:" + path}, OfflineModel: OfflineDefault})
	if err != nil {
		t.Fatal(err)
	}
	if a.OfflineModel() == nil || a.Token() != "" {
		t.Errorf("model %v, token %q", a.OfflineModel(), a.Token())
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if !gone(path) {
		t.Errorf("%q is still there", path)
	}
}

// TCP needs the token, generated or configured.
func TestAppToken(t *testing.T) {
	t.Parallel()
	r := start(t, Config{Listen: []string{"localhost:0"}}, WithRunner(fake(t, fakecli.Script{})))
	ctx, _ := r.dial(t)
	_, err := copilot.Dial(ctx, r.Target(), copilot.WithoutReconnect())
	if !copilot.IsReason(err, bridgev1.ErrorReason_ERROR_REASON_UNAUTHENTICATED) {
		t.Errorf("without the token: %v", err)
	}
}

// Sessions talk to the offline model unless they say otherwise, and the CLI's calls of
// GitHub's own API go there too.
func TestOfflineModelIsTheDefault(t *testing.T) {
	t.Parallel()
	cli := fakecli.New(fakecli.Options{})
	t.Cleanup(cli.Close)
	specs := make(chan runtime.Spec, 1)
	r := start(t, Config{OfflineModel: OfflineDefault, Env: map[string]string{"A": "b"}},
		WithLogger(slog.New(slog.DiscardHandler)),
		WithRunner(runtime.InProcess(func(_ context.Context, spec runtime.Spec) (io.ReadWriteCloser, error) {
			specs <- spec
			return cli.Connect(), nil
		})))
	ctx, c := r.dial(t)
	if _, err := c.CreateSession(ctx, copilot.SessionOptions{}); err != nil {
		t.Fatal(err)
	}
	env := (<-specs).Profile.Env
	url := r.OfflineModel().URL()
	if env["COPILOT_API_URL"] != url || env["COPILOT_DEBUG_GITHUB_API_URL"] != url || env["A"] != "b" {
		t.Errorf("environment %v", env)
	}
	for _, e := range cli.Log() {
		if e.Type == "session.create" {
			if body := string(e.Body); !strings.Contains(body, url+"/v1") || !strings.Contains(body, `"offline-demo"`) {
				t.Errorf("created with %s", body)
			}
			return
		}
	}
	t.Error("no session was created")
}

func gone(path string) bool {
	_, err := os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}
