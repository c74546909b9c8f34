package callback

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// TestEveryApprovalOutlivesTheRuntime: approvals for the session of an MCP server's tool, a URL and writing hold in the
// CLI process that comes after a kill, and allow no more there than before it: another tool or port needs a new
// approval. The approval of a directory ends with its process.
func TestEveryApprovalOutlivesTheRuntime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"open", "shut"} {
		if err := os.MkdirAll(filepath.Join(dir, name, "in"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	site, other := httptest.NewServer(http.NotFoundHandler()), httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(site.Close)
	t.Cleanup(other.Close)
	text := map[string]any{"text": "hello"}
	view := func(path ...string) map[string]any {
		return map[string]any{"path": filepath.Join(append([]string{dir}, path...)...)}
	}
	// The directory for temporary files is open, and the test's are in it: it gets another.
	st := harness.NewOwnScripted(t, harness.HostConfig{Env: map[string]string{"TMPDIR": t.TempDir()}},
		harness.OnUser("tool", harness.Call("loud-shout", text)),
		harness.OnUser("another", harness.Call("loud-fail", text)),
		harness.OnResult("loud-shout", harness.Say("done")), harness.OnResult("loud-fail", harness.Say("done")),
		harness.OnUser("fetch", harness.Call("web_fetch", map[string]any{"url": site.URL + "/a"})),
		harness.OnUser("elsewhere", harness.Call("web_fetch", map[string]any{"url": other.URL + "/a"})),
		harness.OnResult("web_fetch", harness.Say("done")),
		harness.OnUser("look", harness.Call("view", view("open"))),
		harness.OnUser("below", harness.Call("view", view("open", "in"))),
		harness.OnUser("beside", harness.Call("view", view("shut"))), harness.OnResult("view", harness.Say("done")))
	config := st.Config()
	config.McpServers = map[string]*cliv1.McpSerializableServerConfig{"loud": harness.MCPServer(t)}
	var mu sync.Mutex
	var asked []string
	once := map[string]bool{"mcp fail": true, "url " + other.URL + "/a": true, "path shut": true}
	s := st.Create(copilot.SessionOptions{Config: config,
		OnPermission: func(_ context.Context, r *copilot.PermissionRequest) (*copilot.Decision, error) {
			mu.Lock()
			defer mu.Unlock()
			what := whatIsAsked(r, dir)
			if what == "read" { // what is in a directory, not the directory
				return copilot.ApproveOnce(), nil
			}
			asked = append(asked, what)
			if once[what] {
				return copilot.ApproveOnce(), nil
			}
			return copilot.ApproveForSession(), nil
		}})
	prompts := []string{"tool", "another", "fetch", "elsewhere", "look", "below", "beside"}
	verify := func(when string, want ...string) {
		t.Helper()
		mu.Lock()
		asked = nil
		mu.Unlock()
		for _, text := range prompts {
			st.Say(s, text)
		}
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(asked, want) {
			t.Errorf("%s: asked are %q, want %q", when, asked, want)
		}
	}
	rest := []string{"mcp fail", "url " + other.URL + "/a", "path shut"}
	verify("at first", "mcp shout", rest[0], "url "+site.URL+"/a", rest[1], "path open", rest[2])
	verify("then", rest...)
	st.Kill(s.ID())
	again := []string{rest[0], rest[1], "path open", rest[2]}
	verify("after a kill", again...)
	st.Kill(s.ID()) // repeated approvals are remembered
	verify("after another", again...)
}

// whatIsAsked is the subject of a permission, in short; paths are relative to dir.
func whatIsAsked(r *copilot.PermissionRequest, dir string) string {
	prompt := r.Data.GetPromptRequest()
	if paths := prompt.GetPath().GetPaths(); len(paths) > 0 {
		return "path " + strings.TrimPrefix(paths[0], dir+string(filepath.Separator))
	}
	return strings.TrimSpace(r.Kind + " " + prompt.GetMcp().GetToolName() + prompt.GetUrl().GetUrl())
}
