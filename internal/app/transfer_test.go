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
