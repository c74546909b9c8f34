package deploy

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
)

// TestDeployPage: a user who types the commands of the page has a server with TLS and identities, and it behaves as the
// page says.
func TestDeployPage(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	follow(t, typedLines(t, "deploy", "docs/deploy.md", "5556", "7443", "7444"),
		"tls_cert: cert.pem # config.yaml:2", `ok       policy: "policy.yaml" is valid; number of tenants: 1`,
		", and its keys can be read", `ok       tls_cert: "cert.pem" is valid until `, "ok       port localhost:", "TURN_STATUS_COMPLETED", `"sessionId": "first"`,
		"copilot.bridge.v1.SessionService",
		"you:            ann, owner of the tenant acme\n", "known by:       a JSON web token of http://127.0.0.1:",
		"allowed:        read, drive, own\nuntil:          20",
		"code = Unauthenticated", "code = PermissionDenied", `copilot_turns_total{`, `"msg":"session.create"`,
		"Code: ResourceExhausted", "QuotaFailure")
}

// TestClusterPage: a user who types the commands of the page has two replicas, and a session outlives its owner.
func TestClusterPage(t *testing.T) {
	t.Parallel()
	harness.SkipWithoutCLI(t)
	follow(t, typedLines(t, "cluster", "docs/cluster.md", "4222", "7801", "7802"),
		"You said: first", `"text":"You said: second`, `"node":"b"`, `"movedSessions":"1"`,
		"reason\":\"SESSION_UNAVAILABLE\"", `"text":"You said: third`,
		`"content":"first"`, `"content":"third"`)
}

// follow types lines into a shell, and fails the test if a line fails or something is missing in what comes out.
func follow(t *testing.T, lines string, wants ...string) {
	t.Helper()
	for _, program := range []string{"openssl", "curl", "bash"} {
		harness.Installed(t, program, "")
	}
	out, err := typed(t, lines, filepath.Dir(grpcurl(t)))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range wants {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in what comes out", want)
		}
	}
	if t.Failed() {
		t.Log(out)
	}
}

// typedLines are the blocks of a page with a mark, which are to be typed in. The page's ports may be taken here: free
// ones replace them.
func typedLines(t *testing.T, mark, page string, ports ...string) string {
	t.Helper()
	lines := markedLines(t, mark, page)
	if len(lines) < 20 {
		t.Fatalf("the page has %d lines to type in", len(lines))
	}
	var replaced []string
	for _, port := range ports {
		_, free, _ := strings.Cut(harness.FreeAddress(t), ":")
		replaced = append(replaced, port, free)
	}
	return strings.NewReplacer(replaced...).Replace(strings.Join(lines, "\n") + "\n")
}

// typed types lines into a shell, which stops at the first that fails, and returns what comes
// out.
func typed(t *testing.T, lines, path string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	home, err := os.MkdirTemp("", "deploy") // short: it is in a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	cmd := exec.CommandContext(ctx, "bash", "-e", "-c", strings.ReplaceAll(lines, "\n! ", "\nfails "))
	cmd.Dir = "../.."
	cmd.Env = append(harness.UserEnv(t, home), "PATH="+path+":"+os.Getenv("PATH"),
		`BASH_FUNC_fails%%=() { if "$@"; then return 1; fi; }`)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	// Background processes belong to its group, and end with the test.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 10 * time.Second
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err = cmd.Run()
	if cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
	}
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(home, "bridge", "server.log"))
		out.Write(log)
	}
	return out.String(), err
}
