package e2e

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

	"github.com/copilot-grpc/copilot-grpc/bridge/quirks"
	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// patience is how long anything may take before a test gives up. It is far more than
// anything takes: a loaded machine is no failure.
const patience = 60 * time.Second

// echo is the script of tests to which it does not matter what the model says.
const echo = `default: {reply: [{text: "You said: {{user}}"}]}`

// rig is what a test works with.
type rig struct {
	t    *testing.T
	host *host
	// client is connected to the host's server.
	client *copilot.Client
	// model is the test's own scope of the offline model.
	model *offlinemodel.Scope
	// dir is the working directory of the test's sessions.
	dir string
	// ctx ends with the test, or when it has taken too long.
	ctx context.Context

	mu       sync.Mutex
	sessions []string
}

// newRig gives a test its place on the shared host. The script (YAML, as in
// docs/offline-model.md) is what the model plays.
func newRig(t *testing.T, script string) *rig {
	t.Helper()
	skipWithoutCLI(t)
	h, err := shared.get()
	if err != nil {
		t.Fatalf("shared host: %v", err)
	}
	return newRigOn(t, h, script)
}

// newOwnRig gives a test a server and a CLI process of its own.
func newOwnRig(t *testing.T, script string, config hostConfig) *rig {
	t.Helper()
	if config.fake == nil {
		skipWithoutCLI(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	h, err := startHost(ctx, config)
	if err != nil {
		t.Fatalf("host: %v", err)
	}
	t.Cleanup(func() {
		if err := h.close(); err != nil {
			t.Errorf("end of the host: %v", err)
		}
		if t.Failed() {
			t.Logf("log of the host:\n%s", h.logs)
		}
	})
	return newRigOn(t, h, script)
}

func skipWithoutCLI(t *testing.T) {
	t.Helper()
	if os.Getenv(cliEnv) == "" {
		t.Skip(notRun)
	}
}

// newRigOn gives a test a place on a host.
func newRigOn(t *testing.T, h *host, script string) *rig {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	r := &rig{t: t, host: h, dir: realDir(t), ctx: ctx}
	parsed, err := offlinemodel.Parse("script.yaml", []byte(script))
	if err != nil {
		t.Fatalf("script: %v", err)
	}
	if r.model, err = h.model.NewScope(t.Name(), parsed); err != nil {
		t.Fatalf("scope: %v", err)
	}
	t.Cleanup(r.model.Close)
	r.client = r.dial()
	t.Cleanup(r.cleanup)
	return r
}

// realDir is a temporary directory under its real name, as the CLI tells it.
func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// dial gives another client of the same server, which ends with the test.
func (r *rig) dial(opts ...copilot.Option) *copilot.Client {
	r.t.Helper()
	c, err := copilot.Dial(r.ctx, r.host.target, opts...)
	if err != nil {
		r.t.Fatalf("dial: %v", err)
	}
	r.t.Cleanup(func() { _ = c.Close() })
	return c
}

// has tells whether the CLI has a quirk.
func (r *rig) has(q quirks.Quirk) bool { return q.In(r.host.cli) }

// before tells whether the CLI is older than a version ("1.0.102"), for what differs.
func (r *rig) before(version string) bool {
	r.t.Helper()
	cli, ok := quirks.ParseVersion(r.host.cli)
	other, okOther := quirks.ParseVersion(version)
	if !ok || !okOther {
		r.t.Fatalf("compare the versions %q and %q", r.host.cli, version)
	}
	return cli.Compare(other) < 0
}

// provider is the offline model by chat completions.
func (r *rig) provider() *cliv1.ProviderConfig {
	return &cliv1.ProviderConfig{
		Type:    cliv1.ProviderConfigType_PROVIDER_CONFIG_TYPE_OPENAI,
		WireApi: cliv1.ProviderConfigWireApi_PROVIDER_CONFIG_WIRE_API_COMPLETIONS,
		BaseUrl: r.model.OpenAIBaseURL(),
		ApiKey:  proto.String("offline"),
	}
}

// options are those of a session with the test's model and directory, with changes to
// its configuration.
func (r *rig) options(changes ...func(*cliv1.SessionConfig)) copilot.SessionOptions {
	config := &cliv1.SessionConfig{
		Model: proto.String(offlinemodel.DefaultModel), Provider: r.provider(),
		WorkingDirectory: proto.String(r.dir), SkipCustomInstructions: proto.Bool(true),
	}
	for _, change := range changes {
		change(config)
	}
	return copilot.SessionOptions{Config: config}
}

// session creates a session and takes part in it.
func (r *rig) session(opts copilot.SessionOptions) *testSession {
	r.t.Helper()
	return r.sessionOf(r.client, opts)
}

// sessionOf is session for another client.
func (r *rig) sessionOf(c *copilot.Client, opts copilot.SessionOptions) *testSession {
	r.t.Helper()
	s, err := c.CreateSession(r.ctx, opts)
	if err != nil {
		r.t.Fatalf("create session: %v", err)
	}
	return r.adopt(s)
}

// resume resumes a session.
func (r *rig) resume(c *copilot.Client, id string, opts copilot.SessionOptions) *testSession {
	r.t.Helper()
	s, err := c.ResumeSession(r.ctx, id, opts)
	if err != nil {
		r.t.Fatalf("resume session: %v", err)
	}
	return r.adopt(s)
}

// adopt lets a session end with the test, and be told of when the test fails.
func (r *rig) adopt(s *copilot.Session) *testSession {
	r.own(s.ID())
	return &testSession{Session: s, rig: r}
}

// own lets a session end with the test, and be told of when the test fails.
func (r *rig) own(id string) {
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
func (r *rig) cleanup() {
	ctx, cancel := background()
	defer cancel()
	c, err := copilot.Dial(ctx, r.host.target) // the test may have closed its own
	if err != nil {
		r.t.Logf("cleanup: %v", err) // the test may have ended the host
		return
	}
	defer c.Close() //nolint:errcheck // nothing depends on it
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.t.Failed() {
		r.diagnose(ctx, c)
	}
	for _, id := range r.sessions {
		_ = c.DeleteSession(ctx, id) // the test may have deleted it
	}
}

// diagnose logs what the sessions' journals, but for the many deltas, and the model know.
func (r *rig) diagnose(ctx context.Context, c *copilot.Client) {
	r.t.Logf("CLI %s", r.host.cli)
	telling := copilot.WithFilter(&bridgev1.EventFilter{
		IncludeHeavy: true, ExcludeTypes: []string{"assistant.message_delta", "assistant.streaming_delta"},
	})
	for _, id := range r.sessions {
		var types []string
		for ev, err := range c.Session(id).History(ctx, telling) {
			if err != nil {
				types = append(types, fmt.Sprintf("(%v)", err))
				continue
			}
			types = append(types, fmt.Sprintf("%d:%s", ev.GetPosition().GetSeq(), ev.GetEvent().GetType()))
		}
		r.t.Logf("journal of %s: %s", id, strings.Join(types, " "))
	}
	for _, req := range r.model.Requests() {
		r.t.Logf("model request %d: %s %s, status %d, %s, rule %q, %d tools, %d messages, user %q", req.Number,
			req.Method, req.Path, req.Status, req.Outcome, req.Rule, len(req.Tools), len(req.Messages), req.UserText())
	}
}

// lastModelRequest is the newest model request.
func (r *rig) lastModelRequest() offlinemodel.Request {
	r.t.Helper()
	requests := r.model.ModelRequests()
	if len(requests) == 0 {
		r.t.Fatal("the model was asked nothing")
	}
	return requests[len(requests)-1]
}

// write puts a file into the working directory and returns its path.
func (r *rig) write(name, text string) string {
	r.t.Helper()
	path := filepath.Join(r.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// logBuffer keeps the beginning of a log.
type logBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

const maxLog = 256 << 10

// Write implements io.Writer. What no longer fits is dropped.
func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.buf.Len()+len(p) <= maxLog {
		b.buf.Write(p)
	}
	return len(p), nil
}

// String is what was kept.
func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
