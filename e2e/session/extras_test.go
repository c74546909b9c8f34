package session

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

func TestSessionMCPServer(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, `
rules:
  - when: {user: "Say it aloud"}
    reply: [{tool_call: {name: loud-shout, arguments: {text: hello}}}]
  - when: {tool_result: {name: loud-shout}}
    reply: [{text: "It said: {{tool_result}}"}]
default: {reply: [{text: "ok"}]}`)
	opts := r.Options(func(c *cliv1.SessionConfig) {
		c.McpServers = map[string]*cliv1.McpSerializableServerConfig{"loud": harness.MCPServer(t)}
	})
	kinds := make(chan string, 10)
	opts.OnPermission = func(ctx context.Context, req *copilot.PermissionRequest) (*copilot.Decision, error) {
		kinds <- req.Kind
		return copilot.ApproveAll(ctx, req)
	}
	s := r.Session(opts)
	if got := s.Ask("Say it aloud"); !strings.Contains(got, "hello! (from afar)") {
		t.Errorf("the agent says %q", got)
	}
	if got := <-kinds; got != "mcp" {
		t.Errorf("leave was asked for %q", got)
	}
	first := r.Model.ModelRequests()[0]
	if !slices.Contains(first.ToolNames(), "loud-shout") {
		t.Errorf("the model was offered %q", first.ToolNames())
	}
	harness.WantOrder(t, s.RecordedTypes(), "tool.execution_start", "tool.execution_complete")
}

func TestSessionConfigDir(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	dir := filepath.Join(r.Dir, "config")
	s := r.Session(r.Options(func(c *cliv1.SessionConfig) { c.ConfigDir = proto.String(dir) }))
	s.Ask("hello")
	recorded := harness.ReadRecord(t, filepath.Join(dir, "session-state", s.ID(), "events.jsonl"))
	if len(recorded) == 0 {
		t.Error("the CLI recorded nothing there")
	}
	if other := s.Record(); other != nil {
		t.Errorf("the CLI recorded %d events in its own folder", len(other))
	}
	if got := s.Info().Proto.GetWorkspacePath(); got != filepath.Join(dir, "session-state", s.ID()) {
		t.Errorf("workspace path is %q", got)
	}
}

func TestSessionInfiniteSwitch(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	for _, on := range []bool{true, false} {
		s := r.Session(r.Options(func(c *cliv1.SessionConfig) {
			c.InfiniteSessions = &cliv1.InfiniteSessionConfig{Enabled: proto.Bool(on)}
		}))
		s.Ask("hello")
		want := ""
		if on {
			want = filepath.Join(r.Host.Home, "session-state", s.ID())
		}
		if got := s.Info().Proto.GetWorkspacePath(); got != want {
			t.Errorf("infinite: %t, workspace path is %q, want %q", on, got, want)
		}
	}
}

func TestSessionInfiniteCompacts(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, `
rules:
  - name: summary
    when: {user: "summary of the conversation"}
    reply: [{text: "<overview>They spoke of herons.</overview>"}]
default: {reply: [{text: "You said: {{user}}"}]}`)
	s := r.Session(r.Options(func(c *cliv1.SessionConfig) {
		c.InfiniteSessions = &cliv1.InfiniteSessionConfig{
			Enabled:                       proto.Bool(true),
			BackgroundCompactionThreshold: proto.Float64(0.01), BufferExhaustionThreshold: proto.Float64(0.02),
		}
	}))
	s.Ask("one")
	s.Ask("two")
	done := s.WaitFor("session.compaction_complete").GetEvent().GetSessionCompactionComplete()
	if !done.GetSuccess() || !strings.Contains(done.GetSummaryContent(), "They spoke of herons.") {
		t.Errorf("session.compaction_complete says %v", done)
	}
	s.Ask("three")
	last := r.LastModelRequest()
	if told := string(last.Body); !strings.Contains(told, "They spoke of herons.") {
		t.Error("the model was not told the summary")
	}
	harness.WantOrder(t, s.RecordedTypes(), "session.compaction_start", "session.compaction_complete", "user.message")
}
