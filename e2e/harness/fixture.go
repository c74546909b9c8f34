package harness

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/quirks"
	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// Patience bounds a test, so that one that hangs fails. It is many times what a test takes on an idle machine: with ten
// busy processes for each core, tests of the surface take more than a minute.
const Patience = 4 * time.Minute

// echo is the script of tests to which it does not matter what the model says.
const Echo = `default: {reply: [{text: "You said: {{user}}"}]}`

// Fixture is the server, client, model and folder that a test works with.
type Fixture struct {
	T    *testing.T
	Host *Host
	// client is connected to the host's server.
	Client *copilot.Client
	// model is the test's own scope of the offline model.
	Model *offlinemodel.Scope
	// dir is the working directory of the test's sessions.
	Dir string
	// ctx ends with the test, or when it has taken too long.
	Ctx context.Context

	mu       sync.Mutex
	sessions []string
}

// NewFixture gives a test its place on the shared host. The script (YAML, as in
// docs/offline-model.md) is what the model plays.
func NewFixture(t *testing.T, script string) *Fixture {
	t.Helper()
	SkipWithoutCLI(t)
	h, err := shared.get()
	if err != nil {
		t.Fatalf("shared host: %v", err)
	}
	return NewFixtureOn(t, h, script)
}

// NewOwnFixture gives a test a separate server and CLI process.
func NewOwnFixture(t *testing.T, script string, config HostConfig) *Fixture {
	t.Helper()
	if config.Fake == nil {
		SkipWithoutCLI(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	h, err := startHost(ctx, config)
	if err != nil {
		t.Fatalf("host: %v", err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Errorf("end of the host: %v", err)
		}
		if t.Failed() {
			t.Logf("log of the host:\n%s", h.Logs)
		}
	})
	return NewFixtureOn(t, h, script)
}

// SkipWithoutCLI skips the test if no CLI is configured.
func SkipWithoutCLI(t *testing.T) {
	t.Helper()
	if os.Getenv(CLIEnv) == "" {
		t.Skip(notRun)
	}
}

// NewFixtureOn gives a test a place on a host.
func NewFixtureOn(t *testing.T, h *Host, script string) *Fixture {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	t.Cleanup(cancel)
	r := &Fixture{T: t, Host: h, Dir: RealDir(t), Ctx: ctx}
	t.Cleanup(func() { removeDir(t, r.Dir) })
	parsed, err := offlinemodel.Parse("script.yaml", []byte(script))
	if err != nil {
		t.Fatalf("script: %v", err)
	}
	if r.Model, err = h.Model.NewScope(t.Name(), parsed); err != nil {
		t.Fatalf("scope: %v", err)
	}
	t.Cleanup(r.Model.Close)
	r.Client = r.Dial()
	t.Cleanup(r.cleanup)
	return r
}

// removeDir removes the test's folder. A CLI that others still use may write a deleted session's last files into it
// meanwhile.
func removeDir(t *testing.T, dir string) {
	t.Helper()
	ctx, cancel := background()
	defer cancel()
	err := os.RemoveAll(dir)
	for err != nil && ctx.Err() == nil {
		time.Sleep(20 * time.Millisecond)
		err = os.RemoveAll(dir)
	}
	if err != nil {
		t.Errorf("the test's folder: %v", err)
	}
}

// RealDir is a temporary directory under its real name, as the CLI tells it.
func RealDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Dial gives another client of the same server, which ends with the test.
func (r *Fixture) Dial(opts ...copilot.Option) *copilot.Client {
	r.T.Helper()
	c, err := copilot.Dial(r.Ctx, r.Host.Target, opts...)
	if err != nil {
		r.T.Fatalf("dial: %v", err)
	}
	r.T.Cleanup(func() { _ = c.Close() })
	return c
}

// Subscribe opens a stream of a session by a client, with heartbeats.
func (r *Fixture) Subscribe(
	c *copilot.Client, id string, heartbeat time.Duration,
) bridgev1.EventService_SubscribeClient {
	r.T.Helper()
	stream, err := c.EventStreams().Subscribe(r.Ctx, &bridgev1.SubscribeRequest{
		Sessions: []*bridgev1.SessionCursor{{SessionId: id}},
		Options:  &bridgev1.StreamOptions{HeartbeatInterval: durationpb.New(heartbeat)},
	})
	if err != nil {
		r.T.Fatal(err)
	}
	return stream
}

// Has tells whether the CLI has a quirk.
func (r *Fixture) Has(q quirks.Quirk) bool { return q.In(r.Host.CLI) }

// Before tells whether the CLI is older than a version ("1.0.102"), for what differs.
func (r *Fixture) Before(version string) bool {
	r.T.Helper()
	cli, ok := quirks.ParseVersion(r.Host.CLI)
	other, okOther := quirks.ParseVersion(version)
	if !ok || !okOther {
		r.T.Fatalf("compare the versions %q and %q", r.Host.CLI, version)
	}
	return cli.Compare(other) < 0
}

// Provider is the offline model by chat completions.
func (r *Fixture) Provider() *cliv1.ProviderConfig {
	return &cliv1.ProviderConfig{
		ProviderType: cliv1.ProviderConfigType_PROVIDER_CONFIG_TYPE_OPENAI,
		WireApi:      cliv1.ProviderConfigWireApi_PROVIDER_CONFIG_WIRE_API_COMPLETIONS,
		BaseUrl:      r.Model.OpenAIBaseURL(),
		ApiKey:       proto.String("offline"),
	}
}

// Options are the options of a session with the test's model and directory, with changes to its configuration. It does
// not stream.
func (r *Fixture) Options(changes ...func(*cliv1.SessionConfig)) copilot.SessionOptions {
	config := &cliv1.SessionConfig{
		Model: proto.String(offlinemodel.DefaultModel), Provider: r.Provider(),
		WorkingDirectory: proto.String(r.Dir), SkipCustomInstructions: proto.Bool(true), Streaming: proto.Bool(false),
	}
	for _, change := range changes {
		change(config)
	}
	return copilot.SessionOptions{Config: config}
}

// Session creates a session and takes part in it.
func (r *Fixture) Session(opts copilot.SessionOptions) *TestSession {
	r.T.Helper()
	return r.SessionOf(r.Client, opts)
}

// SessionOf is session for another client.
func (r *Fixture) SessionOf(c *copilot.Client, opts copilot.SessionOptions) *TestSession {
	r.T.Helper()
	s, err := c.CreateSession(r.Ctx, opts)
	if err != nil {
		r.T.Fatalf("create session: %v", err)
	}
	return r.Adopt(s)
}

// Resume resumes a session.
func (r *Fixture) Resume(c *copilot.Client, id string, opts copilot.SessionOptions) *TestSession {
	r.T.Helper()
	s, err := c.ResumeSession(r.Ctx, id, opts)
	if err != nil {
		r.T.Fatalf("resume session: %v", err)
	}
	return r.Adopt(s)
}

// Adopt ends a session with the test, and prints it when the test fails.
func (r *Fixture) Adopt(s *copilot.Session) *TestSession {
	r.Own(s.ID())
	return &TestSession{Session: s, Fixture: r}
}

// Own ends a session with the test, and prints it when the test fails.
func (r *Fixture) Own(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, known := range r.sessions {
		if known == id {
			return
		}
	}
	r.sessions = append(r.sessions, id)
}

// cleanup tells what happened if the test failed, and deletes its sessions.
func (r *Fixture) cleanup() {
	ctx, cancel := background()
	defer cancel()
	c, err := copilot.Dial(ctx, r.Host.Target) // the test may have closed its own
	if err != nil {
		r.T.Logf("cleanup: %v", err) // the test may have ended the host
		return
	}
	defer c.Close() //nolint:errcheck // nothing depends on it
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.T.Failed() {
		r.diagnose(ctx, c)
	}
	for _, id := range r.sessions {
		_ = c.DeleteSession(ctx, id) // the test may have deleted it
	}
}

// diagnose logs what the sessions' journals, but for the many deltas, and the model know.
func (r *Fixture) diagnose(ctx context.Context, c *copilot.Client) {
	r.T.Logf("CLI %s", r.Host.CLI)
	telling := copilot.WithFilter(&bridgev1.EventFilter{
		IncludeLarge: true, ExcludeTypes: []string{"assistant.message_delta", "assistant.streaming_delta"},
	})
	for _, id := range r.sessions {
		var types []string
		for ev, err := range c.Session(id).History(ctx, telling) {
			if err != nil {
				types = append(types, fmt.Sprintf("(%v)", err))
				continue
			}
			types = append(types, fmt.Sprintf("%d:%s", ev.GetPosition().GetSeq(), ev.GetEvent().GetEventType()))
		}
		r.T.Logf("journal of %s: %s", id, strings.Join(types, " "))
	}
	for _, req := range r.Model.Requests() {
		r.T.Logf("model request %d: %s %s, status %d, %s, rule %q, %d tools, %d messages, user %q", req.Number,
			req.Method, req.Path, req.Status, req.Outcome, req.Rule, len(req.Tools), len(req.Messages), req.UserText())
	}
}

// LastModelRequest is the newest model request.
func (r *Fixture) LastModelRequest() offlinemodel.Request {
	r.T.Helper()
	requests := r.Model.ModelRequests()
	if len(requests) == 0 {
		r.T.Fatal("the model was asked nothing")
	}
	return requests[len(requests)-1]
}

// Write puts a file into the working directory and returns its path.
func (r *Fixture) Write(name, text string) string {
	r.T.Helper()
	path := filepath.Join(r.Dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		r.T.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.T.Fatal(err)
	}
	return path
}

// LogBuffer keeps the beginning of a log.
type LogBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const maxLog = 256 << 10

// Write implements io.Writer. It drops text that no longer fits.
func (b *LogBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.buf.Len()+len(p) <= maxLog {
		b.buf.Write(p)
	}
	return len(p), nil
}

// String is the collected text.
func (b *LogBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Eventually polls until a condition holds, for changes that no event reports.
func (r *Fixture) Eventually(what string, done func() bool) {
	r.T.Helper()
	for !done() {
		if r.Ctx.Err() != nil {
			r.T.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
