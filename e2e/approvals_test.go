package e2e

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// TestApprovalsOutliveTheRuntime: what was approved for the rest of the session is not asked
// again, nor is more allowed than that: not after a participant's coming, not in the CLI
// process that comes after a kill, and until the session's approvals are reset.
func TestApprovalsOutliveTheRuntime(t *testing.T) {
	t.Parallel()
	st := newOwnStage(t, hostConfig{},
		onUser("same", call("bash", shell("git status"))), onUser("like", call("bash", shell("git status -s"))),
		onResult("bash", say("done")),
		onUser("tool", call("works", nil)), onUser("other", call("other", nil)),
		onResult("works", say("done")), onResult("other", say("done")))
	var mu sync.Mutex
	var asked []string
	session := func(v *cliv1.PermissionDecisionApproveForSessionApproval) *copilot.Decision {
		return &copilot.Decision{Variant: &cliv1.PermissionDecision_ApproveForSession{ApproveForSession: &cliv1.PermissionDecisionApproveForSession{Approval: v}}}
	}
	tool := func(name string) copilot.Tool {
		return copilot.NewTool(name, "Works", func(context.Context, struct{}) (string, error) { return "worked", nil })
	}
	s := st.create(copilot.SessionOptions{
		Tools: []copilot.Tool{tool("works"), tool("other")},
		OnPermission: func(_ context.Context, r *copilot.PermissionRequest) (*copilot.Decision, error) {
			mu.Lock()
			defer mu.Unlock()
			request := r.Data.GetPermissionRequest()
			shell, custom := request.GetShell().GetFullCommandText(), request.GetCustomTool().GetToolName()
			asked = append(asked, shell+custom)
			switch {
			case shell == "git status":
				return session(&cliv1.PermissionDecisionApproveForSessionApproval{Variant: &cliv1.PermissionDecisionApproveForSessionApproval_Commands{
					Commands: &cliv1.PermissionDecisionApproveForSessionApprovalCommands{CommandIdentifiers: []string{shell}},
				}}), nil
			case custom == "works":
				return session(&cliv1.PermissionDecisionApproveForSessionApproval{Variant: &cliv1.PermissionDecisionApproveForSessionApproval_CustomTool{
					CustomTool: &cliv1.PermissionDecisionApproveForSessionApprovalCustomTool{ToolName: custom},
				}}), nil
			}
			return copilot.ApproveOnce(), nil
		},
	})
	all := []string{"git status", "git status -s", "works", "other"}
	verify := func(when string, want ...string) {
		t.Helper()
		mu.Lock()
		asked = nil
		mu.Unlock()
		for _, text := range []string{"same", "like", "tool", "other"} {
			st.say(s, text)
		}
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(asked, want) {
			t.Errorf("%s: asked are %q, want %q", when, asked, want)
		}
	}
	verify("at first", all...)
	verify("then", "git status -s", "other")
	guest := st.attach(joinOf(s.ID(), &bridgev1.Handlers{Kinds: []bridgev1.CallbackKind{bridgev1.CallbackKind_CALLBACK_KIND_USER_INPUT}}))
	verify("after a participant's coming", "git status -s", "other")
	if err := guest.stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := guest.end(); err != nil {
		t.Error(err)
	}
	st.kill(s.ID())
	verify("after a kill", "git status -s", "other")
	did(st.rig, cliv1.NewSessionPermissionsServiceClient(st.conn()).ResetSessionApprovals, &cliv1.SessionPermissionsServiceResetSessionApprovalsRequest{SessionId: s.ID()})
	st.kill(s.ID())
	verify("after a reset and a kill", all...)
}

// TestApprovedForTheSessionAsItIsAsked: an approval for the session that does not say what it
// is of is of what was asked. The same is not asked again, and anything else is.
func TestApprovedForTheSessionAsItIsAsked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) map[string]any {
		return map[string]any{"path": filepath.Join(dir, name), "file_text": "a"}
	}
	site := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(site.Close)
	st := newOwnStage(t, hostConfig{},
		onUser("same", call("bash", shell("git status"))), onUser("like", call("bash", shell("git status -s"))),
		onResult("bash", say("done")),
		onUser("tool", call("works", nil)), onUser("other", call("other", nil)),
		onResult("works", say("done")), onResult("other", say("done")),
		onUser("write", call("create", file("a"))), onUser("more", call("create", file("b"))), onResult("create", say("done")),
		onUser("fetch", call("web_fetch", map[string]any{"url": site.URL + "/a"})),
		onUser("again", call("web_fetch", map[string]any{"url": site.URL + "/b"})), onResult("web_fetch", say("done")))
	var mu sync.Mutex
	var asked []string
	tool := func(name string) copilot.Tool {
		return copilot.NewTool(name, "Works", func(context.Context, struct{}) (string, error) { return "worked", nil })
	}
	s := st.create(copilot.SessionOptions{
		Tools: []copilot.Tool{tool("works"), tool("other")},
		OnPermission: func(_ context.Context, r *copilot.PermissionRequest) (*copilot.Decision, error) {
			mu.Lock()
			defer mu.Unlock()
			request := r.Data.GetPermissionRequest()
			if r.Data.GetPromptRequest().GetPath() == nil { // directories are asked for apart
				asked = append(asked, r.Kind+" "+request.GetShell().GetFullCommandText()+request.GetCustomTool().GetToolName())
			}
			return copilot.ApproveForSession(), nil
		},
	})
	for _, text := range []string{"same", "same", "like", "tool", "tool", "other", "write", "more", "fetch", "again"} {
		st.say(s, text)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"shell git status", "shell git status -s", "custom-tool works", "custom-tool other", "write ", "url "}; !slices.Equal(asked, want) {
		t.Errorf("asked are %q, want %q", asked, want)
	}
}
