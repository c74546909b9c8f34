package tenant

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// A tenant without a sandbox exports its session, and imports the archive, also one that tar has packed again. So does
// another tenant, and the agent remembers the conversation. The import of the import works too.
func TestTenantsCarrySessions(t *testing.T) {
	t.Parallel()
	r := newTenants(t, harness.Echo, "")
	acme, rival := r.as("acme"), r.as("rival")
	r.create(acme, "s", nil)
	r.ask(acme, "s", "the word is plum")
	export := func(name, id string) []byte {
		t.Helper()
		var out bytes.Buffer
		if _, err := copilot.NewClient(r.as(name)).ExportSession(r.Ctx, id, &out); err != nil {
			t.Fatalf("%s exports %s: %v", name, id, err)
		}
		return out.Bytes()
	}
	first := export("acme", "s")
	carry := func(name, id string, text []byte) {
		t.Helper()
		conn := acme
		if name == "rival" {
			conn = rival
		}
		client := copilot.NewClient(conn)
		_, err := client.ImportSession(r.Ctx, bytes.NewReader(text), &bridgev1.ImportSessionHeader{SessionId: id})
		if err != nil {
			t.Fatalf("%s imports %s: %v", name, id, err)
		}
		_, err = client.Sessions().ResumeSession(r.Ctx, &bridgev1.ResumeSessionRequest{SessionId: id,
			Config: &cliv1.SessionConfig{Model: proto.String(offlinemodel.DefaultModel), Provider: r.Provider()}})
		if err != nil {
			t.Fatalf("%s resumes %s: %v", name, id, err)
		}
		r.ask(conn, id, "which word?")
		if got := r.heard(); !strings.Contains(got, "the word is plum") || !strings.Contains(got, "which word?") {
			t.Errorf("the model was told %q", got)
		}
	}
	carry("acme", "copy", first)
	carry("acme", "packed", packedAgain(t, first))
	carry("rival", "s", first)
	carry("acme", "third", export("rival", "s"))
}

// heard returns the texts of users in the last request to the model.
func (r *tenants) heard() string {
	var out []string
	for _, m := range r.LastModelRequest().Messages {
		if m.Role == offlinemodel.RoleUser {
			out = append(out, m.Text)
		}
	}
	return strings.Join(out, "\n")
}

// packedAgain unpacks an archive and packs it again with tar.
func packedAgain(t *testing.T, text []byte) []byte {
	t.Helper()
	dir := t.TempDir()
	file, files := filepath.Join(dir, "a.tar.gz"), filepath.Join(dir, "files")
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s %q: %v: %s", name, args, err, out)
		}
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(files, 0o700); err != nil {
		t.Fatal(err)
	}
	run("tar", "-xzf", file, "-C", files)
	run("tar", "-czf", file, "-C", files, ".")
	again, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return again
}
