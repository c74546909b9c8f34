package app

import (
	"bytes"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// TestImportsAreChecked: the policy applies to the configuration in an archive as to that of a request, and the new
// session belongs to the tenant of its importer.
func TestImportsAreChecked(t *testing.T) {
	t.Parallel()
	ts := startTenants(t, func(c *Config) { c.Home = t.TempDir() })
	client := func(name string) *copilot.Client { return copilot.NewClient(ts.as(name)) }
	host, acme := client("operator"), client("acme-owner")
	_, err := host.Sessions().CreateSession(t.Context(), &bridgev1.CreateSessionRequest{
		SessionId: "s1", Config: &cliv1.SessionConfig{WorkingDirectory: proto.String(t.TempDir())},
	})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if _, err := host.ExportSession(t.Context(), "s1", &text); err != nil {
		t.Fatal(err)
	}
	for name, h := range map[string]*bridgev1.ImportSessionHeader{
		"archive.config.working_directory": nil,
		"header.config.working_directory": {
			Config: &cliv1.SessionConfig{WorkingDirectory: proto.String("/etc")},
		},
	} {
		_, err := acme.ImportSession(t.Context(), bytes.NewReader(text.Bytes()), h)
		if e, ok := copilot.FromError(err).(*copilot.Error); !ok || e.Field != name || //nolint:errorlint // not wrapped
			e.Reason != bridgev1.ErrorReason_ERROR_REASON_FORBIDDEN {
			t.Errorf("%v, want it forbidden because of %s", err, name)
		}
	}
	made, err := acme.ImportSession(t.Context(), bytes.NewReader(text.Bytes()),
		&bridgev1.ImportSessionHeader{Config: &cliv1.SessionConfig{}, SessionId: "copy"})
	if err != nil {
		t.Fatal(err)
	}
	if made.GetSession().GetContext().GetWorkingDirectory() == "/etc" {
		t.Errorf("imported %v", made)
	}
	for _, name := range []string{"operator", "rival", "acme-participant"} {
		_, err := client(name).ExportSession(t.Context(), "copy", &bytes.Buffer{})
		if got := status.Code(err); !slices.Contains([]codes.Code{codes.NotFound, codes.PermissionDenied}, got) {
			t.Errorf("%s exports the session of acme: %v", name, err)
		}
	}
	if _, err := acme.ExportSession(t.Context(), "copy", &bytes.Buffer{}); err != nil {
		t.Errorf("its owner exports it: %v", err)
	}
}

// TestArchivesGoRound exports an ordinary session of each kind of tenant, and imports the archive for each, at the same
// server and at another one. The second generation, an export of the import, goes the same way: an archive has nothing
// that the server has set and that a tenant may not set.
func TestArchivesGoRound(t *testing.T) {
	t.Parallel()
	names := []string{"operator", "acme-owner", "rival", "boxed"} // the host, two tenants without a sandbox, one with it
	servers := map[string]*tenants{}
	for _, server := range []string{"here", "there"} {
		servers[server] = startTenants(t, func(c *Config) {
			c.Home, c.MaxRuntimes = t.TempDir(), 20
			c.Policy = writePolicy(t, walkPolicy, "acme-owner", "acme-participant", "acme-observer", "rival", "thief",
				"operator", "boxed", "locked")
		})
	}
	first := map[string][]byte{}
	for _, from := range names {
		first[from] = exportOrdinary(t, copilot.NewClient(servers["here"].as(from)))
	}
	for _, from := range names {
		for server, ts := range servers {
			for _, by := range names {
				client := copilot.NewClient(ts.as(by))
				again := reexport(t, client, first[from], "from-"+from)
				reexport(t, copilot.NewClient(ts.as("rival")), again, "from-"+from+"-by-"+by)
				if t.Failed() {
					t.Fatalf("exported by %s, imported by %s %s", from, by, server)
				}
			}
		}
	}
}

// exportOrdinary makes a session without anything that affects the host, and returns its archive.
func exportOrdinary(t *testing.T, client *copilot.Client) []byte {
	t.Helper()
	_, err := client.Sessions().CreateSession(t.Context(), &bridgev1.CreateSessionRequest{
		SessionId: "s", Labels: map[string]string{"team": "a"}, Config: &cliv1.SessionConfig{
			Model: proto.String("m"), Streaming: proto.Bool(true),
			SystemMessage: &cliv1.SystemMessageConfig{Content: proto.String("be brief")},
			Tools:         []*cliv1.ToolDefinition{{Name: "look", Description: "looks"}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := client.ExportSession(t.Context(), "s", &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// reexport imports an archive under an id, and returns the archive of that session.
func reexport(t *testing.T, client *copilot.Client, text []byte, id string) []byte {
	t.Helper()
	made, err := client.ImportSession(t.Context(), bytes.NewReader(text), &bridgev1.ImportSessionHeader{SessionId: id})
	if err != nil {
		t.Errorf("import of %s: %v", id, err)
		return nil
	}
	if made.GetSession().GetLabels()["team"] != "a" {
		t.Errorf("imported %v", made)
	}
	var out bytes.Buffer
	if _, err := client.ExportSession(t.Context(), id, &out); err != nil {
		t.Errorf("export of %s: %v", id, err)
	}
	return out.Bytes()
}
