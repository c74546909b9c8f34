package tenant

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
)

// nobody is the user that a tenant's CLI processes run as.
const nobody = 65534

// A tenant's CLI process runs as the user that the policy says, and what it writes is that
// one's; the server has to be able to become it.
func TestTenantHasAUser(t *testing.T) {
	t.Parallel()
	r, home := newUserTenants(t)
	acme := r.as("acme")
	r.create(acme, "theirs", nil)
	if out := r.ask(acme, "theirs", "hello"); out.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Errorf("the turn ended as %v", out)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.pid(acme)))
	if err != nil ||
		!strings.Contains(string(status), fmt.Sprintf("\nUid:\t%d\t%d\t%d\t%d\n", nobody, nobody, nobody, nobody)) {
		t.Errorf("the process is another's (%v):\n%s", err, status)
	}
	if info, err := os.Stat(filepath.Join(home, "copilot")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the tenant's home: %v, %v", info, err)
	}
}

// newUserTenants starts a server whose tenant acme has a user and a home.
func newUserTenants(t *testing.T) (r *tenants, home string) {
	t.Helper()
	harness.SkipWithoutCLI(t)
	if os.Getuid() != 0 {
		t.Skip("NOT RUN: only root can become another user")
	}
	dir, err := os.MkdirTemp("", "user")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { // the other user has to get through
		t.Fatal(err)
	}
	cli := filepath.Join(dir, "copilot")
	copyExecutable(t, os.Getenv(harness.CLIEnv), cli)
	home = filepath.Join(dir, "acme")
	r = newTenantsWith(t, harness.Echo, fmt.Sprintf(", user: {uid: %d, gid: %d}, home: %q", nobody, nobody, home),
		func(c *app.Config) { c.CLIPath = cli })
	return r, home
}

// copyExecutable copies a program to where others may run it.
func copyExecutable(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}
