package callback

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// TestApprovalsOutliveTheRuntime: what was approved for the rest of the session is not asked
// again, nor is more allowed than that: not after a participant's coming, not in the CLI
// process that comes after a kill, and until the session's approvals are reset.
func TestApprovalsOutliveTheRuntime(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{},
		harness.OnUser("same", harness.Call("bash", harness.Shell("git status"))),
		harness.OnUser("like", harness.Call("bash", harness.Shell("git status -s"))),
		harness.OnResult("bash", harness.Say("done")),
		harness.OnUser("tool", harness.Call("works", nil)), harness.OnUser("other", harness.Call("other", nil)),
		harness.OnResult("works", harness.Say("done")), harness.OnResult("other", harness.Say("done")))
	var mu sync.Mutex
	var asked []string
	session := func(v *cliv1.PermissionDecisionApproveForSessionApproval) *copilot.Decision {
		return &copilot.Decision{Variant: &cliv1.PermissionDecision_ApproveForSession{ApproveForSession: &cliv1.PermissionDecisionApproveForSession{Approval: v}}}
	}
	tool := func(name string) copilot.Tool {
		return copilot.NewTool(name, "Works", func(context.Context, struct{}) (string, error) { return "worked", nil })
	}
	s := st.Create(copilot.SessionOptions{
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
			st.Say(s, text)
		}
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(asked, want) {
			t.Errorf("%s: asked are %q, want %q", when, asked, want)
		}
	}
	verify("at first", all...)
	verify("then", "git status -s", "other")
	guest := st.Attach(harness.JoinOf(s.ID(),
		&bridgev1.Handlers{Kinds: []bridgev1.CallbackKind{bridgev1.CallbackKind_CALLBACK_KIND_USER_INPUT}}))
	verify("after a participant's coming", "git status -s", "other")
	if err := guest.Stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := guest.End(); err != nil {
		t.Error(err)
	}
	st.Kill(s.ID())
	verify("after a kill", "git status -s", "other")
	harness.Did(st.Fixture, cliv1.NewSessionPermissionsServiceClient(st.Conn()).ResetSessionApprovals,
		&cliv1.SessionPermissionsServiceResetSessionApprovalsRequest{SessionId: s.ID()})
	st.Kill(s.ID())
	verify("after a reset and a kill", all...)
}

// TestApprovedForTheSessionAsItIsAsked: an approval for the session without a subject has the request's subject. The
// same request needs no new approval, and any other does.
func TestApprovedForTheSessionAsItIsAsked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) map[string]any {
		return map[string]any{"path": filepath.Join(dir, name), "file_text": "a"}
	}
	site := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(site.Close)
	st := harness.NewOwnScripted(t, harness.HostConfig{},
		harness.OnUser("same", harness.Call("bash", harness.Shell("git status"))),
		harness.OnUser("like", harness.Call("bash", harness.Shell("git status -s"))),
		harness.OnResult("bash", harness.Say("done")),
		harness.OnUser("tool", harness.Call("works", nil)), harness.OnUser("other", harness.Call("other", nil)),
		harness.OnResult("works", harness.Say("done")), harness.OnResult("other", harness.Say("done")),
		harness.OnUser("write", harness.Call("create", file("a"))),
		harness.OnUser("more", harness.Call("create", file("b"))), harness.OnResult("create", harness.Say("done")),
		harness.OnUser("fetch", harness.Call("web_fetch", map[string]any{"url": site.URL + "/a"})),
		harness.OnUser("again", harness.Call("web_fetch", map[string]any{"url": site.URL + "/b"})),
		harness.OnResult("web_fetch", harness.Say("done")))
	var mu sync.Mutex
	var asked []string
	tool := func(name string) copilot.Tool {
		return copilot.NewTool(name, "Works", func(context.Context, struct{}) (string, error) { return "worked", nil })
	}
	s := st.Create(copilot.SessionOptions{
		Tools: []copilot.Tool{tool("works"), tool("other")},
		OnPermission: func(_ context.Context, r *copilot.PermissionRequest) (*copilot.Decision, error) {
			mu.Lock()
			defer mu.Unlock()
			request := r.Data.GetPermissionRequest()
			if r.Data.GetPromptRequest().GetPath() == nil { // directories have separate requests
				asked = append(asked,
					r.Kind+" "+request.GetShell().GetFullCommandText()+request.GetCustomTool().GetToolName())
			}
			return copilot.ApproveForSession(), nil
		},
	})
	for _, text := range []string{"same", "same", "like", "tool", "tool", "other", "write", "more", "fetch", "again"} {
		st.Say(s, text)
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"shell git status", "shell git status -s", "custom-tool works", "custom-tool other", "write ",
		"url "}; !slices.Equal(asked, want) {
		t.Errorf("asked are %q, want %q", asked, want)
	}
}
