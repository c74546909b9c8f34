package tenant

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
)

// endless is a script with a turn that does not end.
const endless = `
rules:
  - when: {user: "go on"}
    reply: [{text: "I begin, and"}, {hang: true}]
  - reply: [{text: done}]
`

// repolice writes the policy anew, with a text replaced by another.
func (r *tenants) repolice(from, to string) {
	r.T.Helper()
	path := filepath.Join(filepath.Dir(r.data), "policy")
	text, err := os.ReadFile(path)
	if err == nil && !strings.Contains(string(text), from) {
		err = fmt.Errorf("there is no %q in it", from)
	}
	if err == nil {
		err = os.WriteFile(path, []byte(strings.Replace(string(text), from, to, 1)), 0o600)
	}
	if err != nil {
		r.T.Fatal(err)
	}
}

// boxed marks everything that runs in it.
const boxed = `, sandbox: [env, COPILOT_TEST_BOX=inside]`

// A sandbox that a reloaded policy adds holds from the moment when it gives its tenant's callers
// the right to run commands: none runs in a process from before, however long that goes on.
func TestSandboxOfAReloadedPolicy(t *testing.T) {
	t.Parallel()
	r := newTenantsWith(t, endless, "", func(c *app.Config) { c.ConfinementGrace = 3 * time.Second })
	acme := r.as("acme")
	r.create(acme, "s", nil)
	r.ask(acme, "s", "remember this")
	r.create(acme, "busy", nil)
	r.begin(acme, "busy")
	before, out := r.pid(acme), filepath.Join(harness.RealDir(t), "out")
	run := func() error {
		_, err := cliv1.NewSessionShellServiceClient(acme).Exec(r.Ctx, &cliv1.SessionShellServiceExecRequest{
			SessionId: "s", Command: `echo "box=$COPILOT_TEST_BOX" >> ` + out, Cwd: proto.String("/"),
		})
		return err
	}
	if err := run(); status.Code(err) != codes.PermissionDenied {
		t.Fatalf("a command without a sandbox: %v", err)
	}
	r.repolice("acme: {members: [{token: acme, role: owner}]", "acme: {members: [{token: acme, role: owner}]"+boxed)
	refused := 0
	awaitTrue(t, r.Ctx, "a command", func() bool {
		err := run()
		switch {
		case confinementChanging(err):
			refused++
		case err != nil && status.Code(err) != codes.PermissionDenied: // before the policy is read
			t.Fatal(err)
		}
		return err == nil
	})
	if refused == 0 {
		t.Error("no command was refused while the old process went on")
	}
	awaitTrue(t, r.Ctx, "what the command wrote", func() bool { text, _ := os.ReadFile(out); return len(text) > 0 })
	if text, err := os.ReadFile(out); err != nil || string(text) != "box=inside\n" {
		t.Errorf("the commands wrote %q, %v", text, err)
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", before)); err == nil {
		t.Error("the old process is still there")
	}
	events, err := bridgev1.NewSessionServiceClient(acme).ListEvents(r.Ctx, &bridgev1.ListEventsRequest{SessionId: "s"})
	if err != nil || !strings.Contains(fmt.Sprint(events), "remember this") {
		t.Errorf("the session has lost its history (%v)", err)
	}
	if out := r.ask(acme, "s", "and this"); out.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Errorf("the session goes on with %v", out)
	}
}

// confinementChanging reports whether a call was refused until processes with the earlier confinement have ended.
func confinementChanging(err error) bool {
	e, ok := errors.AsType[*copilot.Error](copilot.FromError(err))
	return ok && e.Reason == bridgev1.ErrorReason_ERROR_REASON_CONFINEMENT_CHANGING
}

// begin begins a turn that does not end.
func (r *tenants) begin(conn *grpc.ClientConn, id string) {
	r.T.Helper()
	client := bridgev1.NewSessionServiceClient(conn)
	if _, err := client.Send(r.Ctx,
		&bridgev1.SendRequest{SessionId: id, Prompt: &bridgev1.Prompt{Text: "go on"}}); err != nil {
		r.T.Fatal(err)
	}
	awaitTrue(r.T, r.Ctx, "the turn", func() bool {
		for _, request := range r.Model.Requests() {
			if strings.Contains(fmt.Sprint(request), "go on") {
				return true
			}
		}
		return false
	})
}

// awaitTrue looks until something is so.
func awaitTrue(t *testing.T, ctx context.Context, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// When the policy names another user, the processes of the previous one end, and the tenant's session goes on in one of
// the new user's.
func TestUserOfAReloadedPolicy(t *testing.T) {
	t.Parallel()
	r, home := newUserTenants(t)
	acme := r.as("acme")
	r.create(acme, "theirs", nil)
	r.ask(acme, "theirs", "remember this")
	before := r.pid(acme)
	// The new user has to get the files of the previous one.
	if text, err := exec.Command("chown", "-R", fmt.Sprint(nobody-1), home).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	r.repolice(fmt.Sprintf("uid: %d", nobody), fmt.Sprintf("uid: %d", nobody-1))
	awaitTrue(t, r.Ctx, "the old process's end", func() bool {
		_, err := os.Stat(fmt.Sprintf("/proc/%d", before))
		return err != nil
	})
	if out := r.ask(acme, "theirs", "still there?"); out.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Errorf("the turn ended as %v", out)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.pid(acme)))
	if err != nil || !strings.Contains(string(status), fmt.Sprintf("\nUid:\t%d\t%d\t", nobody-1, nobody-1)) {
		t.Errorf("the process is another's (%v):\n%s", err, status)
	}
}
