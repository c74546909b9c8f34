package app

import (
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// A tenant can name the server's providers that the policy permits; the others do not exist for it. It cannot have
// their keys sent elsewhere.
func TestProvidersOfTenants(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ts := startTenants(t, func(c *Config) {
		c.Providers = map[string]string{}
		for _, name := range []string{"ours", "theirs"} {
			c.Providers[name] = write(t, filepath.Join(dir, name),
				`{"type": "openai", "baseUrl": "https://`+name+`.example/v1", "apiKey": "planted-key"}`)
		}
		c.Policy = writePolicy(t, `
version: 1
identity: {tokens: tokens.txt}
tenants:
  acme: {members: [{token: acme, role: owner}], providers: [ours], private_urls: ["https://mine.example"]}
  rival: {members: [{token: rival, role: owner}]}
  host: {members: [{token: operator, role: admin}]}
`, "acme", "rival", "operator")
	})
	for _, tc := range []struct {
		name, ref string
		want      codes.Code
	}{
		{"acme", "ours", codes.OK}, {"acme", "theirs", codes.InvalidArgument},
		{"acme", "nobody's", codes.InvalidArgument},
		{"rival", "ours", codes.InvalidArgument}, {"operator", "theirs", codes.OK},
	} {
		_, err := bridgev1.NewSessionServiceClient(ts.as(tc.name)).CreateSession(t.Context(),
			&bridgev1.CreateSessionRequest{
				SessionId: "of-" + tc.ref, ProviderRef: tc.ref,
			})
		wantCode(t, tc.name+" names "+tc.ref, err, tc.want)
	}
	client := bridgev1.NewSessionServiceClient(ts.as("acme"))
	url := "https://mine.example/v1"
	_, err := client.UpdateProvider(t.Context(), &bridgev1.UpdateProviderRequest{
		SessionId: "of-ours", Provider: &cliv1.ProviderConfig{BaseUrl: url},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"base_url"}},
	})
	wantCode(t, "another address", err, codes.OK)
	if got := ts.lastResume("acme"); strings.Contains(got, "planted-key") || !strings.Contains(got, url) {
		t.Errorf("the CLI was told %s", got)
	}
	_, err = client.UpdateProvider(t.Context(), &bridgev1.UpdateProviderRequest{
		SessionId: "of-ours", Provider: &cliv1.ProviderConfig{ApiKey: &url},
		UpdateMask: &fieldmaskpb.FieldMask{Paths: []string{"api_key"}},
	})
	wantCode(t, "a key of its own", err, codes.OK)
	if got := ts.lastResume("acme"); strings.Contains(got, "planted-key") || !strings.Contains(got, "mine.example") {
		t.Errorf("the CLI was told %s", got)
	}
}

// lastResume is the last resume request that a tenant's CLI got.
func (ts *tenants) lastResume(tenant string) string {
	log := ts.cli(tenant).Log()
	for i := len(log) - 1; i >= 0; i-- {
		if e := log[i]; e.Kind == fakecli.EntryReceived && e.Type == "session.resume" {
			return string(e.Body)
		}
	}
	return ""
}
