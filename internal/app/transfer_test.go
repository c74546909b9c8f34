package app

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/transfer/archive"
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
	// The host, two tenants without a sandbox, and one with it.
	names := []string{"operator", "acme-owner", "rival", "boxed"}
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

// TestOnlyTheServersOwnValues: of the fields that a tenant without a sandbox may not set, an archive may have the
// values of the empty mode, and no others.
func TestOnlyTheServersOwnValues(t *testing.T) {
	t.Parallel()
	ts := startTenants(t, func(c *Config) { c.Home = t.TempDir() })
	acme := copilot.NewClient(ts.as("acme-owner"))
	text := exportOrdinary(t, acme)
	for name, change := range map[string]func(*cliv1.SessionConfig){
		"mcp_oauth_token_storage": func(c *cliv1.SessionConfig) {
			c.McpOauthTokenStorage = cliv1.TokenStorage_TOKEN_STORAGE_PERSISTENT
		},
		"embedding_cache_storage": func(c *cliv1.SessionConfig) {
			c.EmbeddingCacheStorage = cliv1.EmbeddingCacheStorage_EMBEDDING_CACHE_STORAGE_PERSISTENT
		},
		"memory":            func(c *cliv1.SessionConfig) { c.Memory = &cliv1.MemoryConfig{Enabled: true} },
		"enable_file_hooks": func(c *cliv1.SessionConfig) { c.EnableFileHooks = proto.Bool(true) },
		"working_directory": func(c *cliv1.SessionConfig) { c.WorkingDirectory = proto.String("/etc") },
		"json_extra":        func(c *cliv1.SessionConfig) { c.JsonExtra = `{"x":1}` },
		"available_tools": func(c *cliv1.SessionConfig) {
			c.AvailableTools.Items = append(c.AvailableTools.Items, "builtin:bash")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := acme.ImportSession(t.Context(), bytes.NewReader(forged(t, text, change)),
				&bridgev1.ImportSessionHeader{SessionId: "forged"})
			if e, ok := copilot.FromError(err).(*copilot.Error); !ok || //nolint:errorlint // not wrapped
				!strings.HasPrefix(e.Field, "archive.config."+name) ||
				e.Reason != bridgev1.ErrorReason_ERROR_REASON_FORBIDDEN {
				t.Errorf("%v, want it forbidden", err)
			}
		})
	}
	made, err := acme.ImportSession(t.Context(), bytes.NewReader(text),
		&bridgev1.ImportSessionHeader{SessionId: "copy"})
	if err != nil {
		t.Fatal(err)
	}
	// Imports of earlier versions wrote the server's directory into the configuration.
	dir := made.GetSession().GetContext().GetWorkingDirectory()
	_, err = acme.ImportSession(t.Context(), bytes.NewReader(forged(t, text, func(c *cliv1.SessionConfig) {
		c.WorkingDirectory = proto.String(dir)
	})), &bridgev1.ImportSessionHeader{SessionId: "earlier"})
	if err != nil {
		t.Error(err)
	}
}

// forged changes the configuration in an archive.
func forged(t *testing.T, text []byte, change func(*cliv1.SessionConfig)) []byte {
	t.Helper()
	content := map[string][]byte{}
	m, err := archive.Read(t.Context(), bytes.NewReader(text), archive.Limits{Bytes: 1 << 20, Parts: 10, Depth: 8}, nil,
		func(p archive.Part, r io.Reader) (err error) {
			content[p.Name], err = io.ReadAll(r)
			return err
		})
	var state map[string]json.RawMessage
	create := &bridgev1.CreateSessionRequest{}
	if err == nil {
		err = json.Unmarshal(content["session.json"], &state)
	}
	if err == nil {
		err = protojson.Unmarshal(state["create"], create)
	}
	if err != nil {
		t.Fatal(err)
	}
	change(create.GetConfig())
	if state["create"], err = protojson.Marshal(create); err != nil {
		t.Fatal(err)
	}
	if content["session.json"], err = json.Marshal(state); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for i, p := range m.Parts {
		sum := sha256.Sum256(content[p.Name])
		m.Parts[i].Size, m.Parts[i].SHA256 = int64(len(content[p.Name])), hex.EncodeToString(sum[:])
	}
	w, err := archive.NewWriter(&out, m)
	for _, p := range m.Parts {
		if err == nil {
			err = w.Add(p.Name, bytes.NewReader(content[p.Name]))
		}
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
