package tenant

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// TenantToken as credentials of a call.
type tokenOf string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (o tokenOf) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + harness.TenantToken(string(o))}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (tokenOf) RequireTransportSecurity() bool { return false }

// tenants is a server with a policy on the real CLI.
type tenants struct {
	*harness.Fixture
	data string
}

// newTenants starts a server with the tenants acme and rival, each with an owner of the same name, and further text of
// the policy for acme.
func newTenants(t *testing.T, script, acme string) *tenants {
	t.Helper()
	return newTenantsWith(t, script, acme, func(*app.Config) {})
}

// newTenantsWith is newTenants with a change of the configuration.
func newTenantsWith(t *testing.T, script, acme string, change func(*app.Config)) *tenants {
	t.Helper()
	harness.SkipWithoutCLI(t)
	dir := harness.RealDir(t)
	var tokens strings.Builder
	for _, name := range []string{"acme", "rival"} {
		sum := sha256.Sum256([]byte(harness.TenantToken(name)))
		fmt.Fprintf(&tokens, "%s %s\n", name, hex.EncodeToString(sum[:]))
	}
	// The policy is written anew once it is known where the model listens.
	policy := `
version: 1
identity: {tokens: tokens}
tenants:
  acme: {members: [{token: acme, role: owner}], private_urls: ["http://127.0.0.1:MODEL"]` + acme + `}
  rival: {members: [{token: rival, role: owner}], private_urls: ["http://127.0.0.1:MODEL"]}
`
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("tokens", tokens.String())
	write("policy", strings.ReplaceAll(policy, ":MODEL", ":1"))
	tr := &tenants{data: filepath.Join(dir, "data")}
	tr.Fixture = harness.NewOwnFixture(t, script, harness.HostConfig{Change: func(c *app.Config) {
		c.Listen = append(c.Listen, "127.0.0.1:0")
		c.Policy, c.DataDir = filepath.Join(dir, "policy"), tr.data
		change(c)
	}})
	write("policy", strings.ReplaceAll(policy, "http://127.0.0.1:MODEL", harness.Origin(tr.Model.OpenAIBaseURL())))
	return tr
}

// as connects as the named user.
func (r *tenants) as(name string) *grpc.ClientConn {
	r.T.Helper()
	conn, err := grpc.NewClient(r.Host.Tcp, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithPerRPCCredentials(tokenOf(name)))
	if err != nil {
		r.T.Fatal(err)
	}
	r.T.Cleanup(func() { _ = conn.Close() })
	return conn
}

// create makes a session of a tenant's, once the policy knows of the model.
func (r *tenants) create(conn *grpc.ClientConn, id string, change func(*cliv1.SessionConfig)) {
	r.T.Helper()
	config := &cliv1.SessionConfig{Model: proto.String(offlinemodel.DefaultModel), Provider: r.Provider()}
	if change != nil {
		change(config)
	}
	tick := time.NewTicker(100 * time.Millisecond) // the policy is read anew now and then
	defer tick.Stop()
	for {
		_, err := bridgev1.NewSessionServiceClient(conn).CreateSession(r.Ctx,
			&bridgev1.CreateSessionRequest{SessionId: id, Config: config})
		if err != nil && !strings.Contains(err.Error(), "not on the tenant's list") {
			r.T.Fatalf("create: %v", err)
		}
		if err == nil {
			return
		}
		<-tick.C
	}
}

func (r *tenants) ask(conn *grpc.ClientConn, id, text string) *bridgev1.TurnOutcome {
	r.T.Helper()
	out, err := bridgev1.NewSessionServiceClient(conn).SendAndWait(r.Ctx,
		&bridgev1.SendAndWaitRequest{SessionId: id, Prompt: &bridgev1.Prompt{Text: text}})
	if err != nil {
		r.T.Fatalf("ask: %v", err)
	}
	return out.GetOutcome()
}

// A tenant's session has the tools that stay within it, and nothing of the host's; two
// tenants with the same id do not meet, on disk either.
func TestTenantsAreEmptyAndApart(t *testing.T) {
	t.Parallel()
	r := newTenants(t, harness.Echo, "")
	acme, rival := r.as("acme"), r.as("rival")
	r.create(acme, "same", nil)
	r.create(rival, "same", nil)
	r.ask(acme, "same", "only acme knows this")
	r.ask(rival, "same", "only rival knows that")
	tools := r.offered()
	for _, name := range []string{"bash", "view", "edit", "create", "grep", "glob", "web_fetch", "powershell", "sql"} {
		if slices.Contains(tools, name) {
			t.Errorf("the model is offered %q, of %v", name, tools)
		}
	}
	for name, conn := range map[string]*grpc.ClientConn{"acme": acme, "rival": rival} {
		list, err := bridgev1.NewSessionServiceClient(conn).ListSessions(r.Ctx, &bridgev1.ListSessionsRequest{})
		if err != nil || len(list.GetSessions()) != 1 {
			t.Errorf("%s has the sessions %v, %v", name, list, err)
		}
		runtimes, err := bridgev1.NewRuntimeServiceClient(conn).ListRuntimes(r.Ctx, &bridgev1.ListRuntimesRequest{})
		if err != nil || len(runtimes.GetRuntimes()) != 1 {
			t.Errorf("%s has the runtimes %v, %v", name, runtimes, err)
		}
		events, err := bridgev1.NewSessionServiceClient(conn).ListEvents(r.Ctx,
			&bridgev1.ListEventsRequest{SessionId: "same"})
		other := map[string]string{"acme": "only rival", "rival": "only acme"}[name]
		if err != nil || strings.Contains(fmt.Sprint(events), other) {
			t.Errorf("%s reads what the other said (%v)", name, err)
		}
		home := filepath.Join(r.data, "tenants", name, "copilot")
		if info, err := os.Stat(home); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("the home of %s: %v, %v", name, info, err)
		}
	}
	for what, change := range map[string]func(*cliv1.SessionConfig){
		"bash":      func(c *cliv1.SessionConfig) { c.AvailableTools = &cliv1.StringList{Items: []string{"bash"}} },
		"directory": func(c *cliv1.SessionConfig) { c.WorkingDirectory = proto.String("/") },
		"metadata":  func(c *cliv1.SessionConfig) { c.Provider.BaseUrl = "http://169.254.169.254" },
	} {
		config := &cliv1.SessionConfig{Provider: r.Provider()}
		change(config)
		_, err := bridgev1.NewSessionServiceClient(acme).CreateSession(r.Ctx,
			&bridgev1.CreateSessionRequest{Config: config})
		if status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v, want PERMISSION_DENIED", what, err)
		}
	}
}

// offered are the tools that the model was offered, in all requests.
func (r *tenants) offered() (names []string) {
	for _, request := range r.Model.Requests() {
		for _, tool := range request.Tools {
			names = append(names, tool.Name)
		}
	}
	return names
}

// bubblewrap is a sandbox in which there are the system's programs, the CLI and the tenant's
// own directories.
const bubblewrap = `, ambient: true, sandbox: [bwrap, --die-with-parent, --unshare-pid, --unshare-ipc, --new-session, --tmpfs, /tmp,
    --ro-bind, /usr, /usr, --ro-bind, /etc, /etc, --symlink, usr/bin, /bin, --symlink, usr/lib, /lib, --symlink, usr/lib64, /lib64,
    --ro-bind, "{bin}", "{bin}", --ro-bind, "{cache}", "{cache}", --proc, /proc, --dev, /dev,
    --bind, "{home}", "{home}", --bind, "{user_home}", "{user_home}", --bind, "{dir}", "{dir}"]`

// In a sandbox the CLI's own tools are there, and see nothing of the host.
func TestSandboxConfinesTheShell(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	if err := exec.Command("bwrap", "--ro-bind", "/", "/", "true").Run(); err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("bubblewrap does not work here: %v", err)
		}
		t.Skipf("NOT RUN: bubblewrap does not work here: %v", err)
	}
	secret := filepath.Join(harness.RealDir(t), "secret")
	if err := os.WriteFile(secret, []byte("the host's secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf(`
rules:
  - when: {user: "look", tools: [bash]}
    reply: [{tool_call: {name: bash, arguments: {command: "cat %s; echo; ls -d $HOME", description: look}}}]
  - when: {tool_result: {name: bash}}
    reply: [{text: done}]
`, secret)
	r := newTenants(t, script, bubblewrap)
	acme := r.as("acme")
	r.create(acme, "boxed", nil)
	if _, err := cliv1.NewSessionPermissionsServiceClient(acme).SetApproveAll(r.Ctx,
		&cliv1.SessionPermissionsServiceSetApproveAllRequest{SessionId: "boxed", Enabled: true}); err != nil {
		t.Fatal(err)
	}
	r.ask(acme, "boxed", "look")
	events, err := bridgev1.NewSessionServiceClient(acme).ListEvents(r.Ctx,
		&bridgev1.ListEventsRequest{SessionId: "boxed"})
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprint(events)
	if strings.Contains(text, "the host's secret") {
		t.Error("the shell has read a file of the host's")
	}
	if home := filepath.Join(r.data, "tenants", "acme", "home"); !strings.Contains(text, home) ||
		!strings.Contains(text, "No such file") {
		t.Errorf("the shell has not looked: %s", text)
	}
}
