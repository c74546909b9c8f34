package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// lockedBuffer is a log that tests read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// planted are secrets, by where they are planted.
var planted = map[string]string{
	"provider key":    "PLANTED-api-key-1",
	"provider bearer": "PLANTED-bearer-2",
	"provider header": "PLANTED-header-3",
	"mcp header":      "PLANTED-mcp-header-4",
	"github token":    "PLANTED-github-5",
	"profile token":   "PLANTED-profile-6",
	"profile env":     "PLANTED-env-7",
	"wrong token":     "PLANTED-wrong-token-8",
	"request header":  "PLANTED-request-9",
	"credentials":     "PLANTED-credentials-10",
}

// spoken are things that callers say, and have a right to see in the log that they asked to
// have them, and in the journal, but nowhere else.
var spoken = map[string]string{
	"prompt":        "PLANTED-prompt",
	"tool argument": "PLANTED-argument",
	"tool result":   "PLANTED-result",
}

// replies are the texts of all replies and errors that callers received.
type replies []string

// add records the result of a call.
func (r *replies) add(reply any, err error) {
	*r = append(*r, fmt.Sprint(reply, err, status.Convert(err).Details()))
}

// Secrets that callers send are in no log, error, span, metric or file, whether the calls that bring them succeed or
// fail.
func TestSecretsStayInMemory(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	data := ""
	ts := startObserved(t, func(c *Config) {
		c.LogRequests, data = true, c.DataDir
		c.Listen = append(c.Listen, "unix:"+filepath.Join(shortDir(t), "s"))
		c.ProfileFields = []string{"env", "github_token"}
	}, WithLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	ts.plays("", deploying)
	received := sendSecrets(t, ts)
	silent := telemetryOf(t, ts)
	for where, text := range silent {
		if len(text) < 1000 {
			t.Errorf("%s: there is nothing to look at: %s", where, text)
		}
		for what, words := range spoken {
			if strings.Contains(text, words) {
				t.Errorf("%s: the %s is there", where, what)
			}
		}
	}
	places := map[string]string{"the log": log.String(), "the replies": strings.Join(received, "\n")}
	maps.Copy(places, silent)
	maps.Copy(places, filesUnder(t, data))
	if len(places) < 4 || !strings.Contains(places["the log"], "CreateSession") {
		t.Fatalf("there is nothing to look at: %d places", len(places))
	}
	for where, text := range places {
		wantNoSecrets(t, where, text)
	}
}

// sendSecrets makes calls with each planted secret, of which some succeed and some fail.
func sendSecrets(t *testing.T, ts *observed) (received replies) {
	t.Helper()
	ctx := t.Context()
	operator := bridgev1.NewSessionServiceClient(ts.as("operator"))
	config := secretConfig()
	for _, r := range []*bridgev1.CreateSessionRequest{
		{SessionId: "s", RequestId: "r", Config: config},
		{SessionId: "s", Config: config}, // exists
		{SessionId: "g", Config: &cliv1.SessionConfig{GithubToken: proto.String(planted["github token"])}},
		{SessionId: "p", RuntimeProfile: &bridgev1.RuntimeProfile{
			GithubToken: planted["profile token"], Env: map[string]string{"X": planted["profile env"]},
		}},
	} {
		received.add(operator.CreateSession(ctx, r))
	}
	received.add(operator.SendAndWait(ctx, &bridgev1.SendAndWaitRequest{SessionId: "s", Prompt: &bridgev1.Prompt{
		Text: "hi", RequestHeaders: map[string]string{"x": planted["request header"]},
	}}))
	received.add(operator.ProvideCredentials(ctx, &bridgev1.ProvideCredentialsRequest{
		SessionId: "s", Provider: &cliv1.ProviderConfig{ApiKey: proto.String(planted["credentials"])},
	}))
	deploy(ctx, t, ts.tenants, "operator", "deployed", spoken["prompt"])
	acme := bridgev1.NewSessionServiceClient(ts.as("acme-owner"))
	// The policy does not allow the tenant the provider's URL.
	received.add(acme.CreateSession(ctx, &bridgev1.CreateSessionRequest{SessionId: "s", Config: config}))
	wrong := metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+planted["wrong token"])
	received.add(bridgev1.NewSessionServiceClient(ts.as("")).ListSessions(wrong, &bridgev1.ListSessionsRequest{}))
	text := strings.Join(received, "\n")
	for _, want := range []string{"session_id:\"s\"", "SESSION_EXISTS", "FORBIDDEN"} {
		if !strings.Contains(text, want) {
			t.Fatalf("the calls did not do what they are made for: no %s in\n%s", want, text)
		}
	}
	return received
}

// secretConfig is a session's configuration with secrets in a provider and in an MCP server.
func secretConfig() *cliv1.SessionConfig {
	return &cliv1.SessionConfig{
		Provider: &cliv1.ProviderConfig{
			BaseUrl: "http://127.0.0.1:1", ApiKey: proto.String(planted["provider key"]),
			BearerToken: proto.String(planted["provider bearer"]),
			Headers:     map[string]string{"x": planted["provider header"]},
		},
		McpServers: map[string]*cliv1.McpSerializableServerConfig{
			"m": {Variant: &cliv1.McpSerializableServerConfig_Http{Http: &cliv1.McpServerConfigHttp{
				Url: "http://127.0.0.1:1", Headers: map[string]string{"x": planted["mcp header"]},
			}}},
		},
	}
}

// telemetryOf stops the server and returns its metrics, heap profile, spans and audit log.
func telemetryOf(t *testing.T, ts *observed) map[string]string {
	t.Helper()
	_, page := ts.get(t, "/metrics")
	_, heap := ts.get(t, "/debug/pprof/heap?debug=1")
	ts.stop()
	ts.end(t)
	spans, err := json.Marshal(ts.spans.all())
	if err != nil {
		t.Fatal(err)
	}
	audit, err := os.ReadFile(ts.audit)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]string{
		"the metrics": page, "the profile": heap, "the spans": string(spans), "the audit log": string(audit),
	}
}

// wantNoSecrets fails the test if a text has a planted secret or a token of the policy.
func wantNoSecrets(t *testing.T, where, text string) {
	t.Helper()
	for what, secret := range planted {
		if strings.Contains(text, secret) {
			t.Errorf("%s has the %s", where, what)
		}
	}
	for _, name := range []string{"operator", "acme-owner"} {
		if strings.Contains(text, secretOf(name)) {
			t.Errorf("%s has the token of %s", where, name)
		}
	}
}

// filesUnder are the texts of all files in a folder, by their paths.
func filesUnder(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		files[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
