package callback

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// withMCP has a session with an MCP server.
func withMCP(
	name string, server func(*harness.Scripted) *cliv1.McpSerializableServerConfig,
) func(*harness.Scripted, *cliv1.SessionConfig) {
	return func(st *harness.Scripted, c *cliv1.SessionConfig) {
		c.McpServers = map[string]*cliv1.McpSerializableServerConfig{name: server(st)}
	}
}

// mcpQuestions are what the CLI asks because of an MCP server.
var mcpQuestions = map[string]question{
	"sampling": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_SAMPLING,
		config: withMCP("loud",
			func(st *harness.Scripted) *cliv1.McpSerializableServerConfig { return harness.MCPServer(st.T) }),
		rules: []offlinemodel.Rule{
			harness.OnUser("ask", harness.Call("loud-ponder", map[string]any{"text": "What is it?"})),
			harness.OnResult("loud-ponder", harness.Say("told: {{tool_result}}")),
		},
		request: `server_name:"loud"`,
		accept: &bridgev1.SamplingAnswer{ResponseJson: proto.String(
			`{"role":"assistant","model":"another","stopReason":"endTurn","content":{"type":"text","text":"a riddle"}}`)},
		accepted: "a riddle",
		decline:  &bridgev1.SamplingAnswer{}, declined: "it came to",
		silent: "it came to",
	},
	"MCP OAuth": {
		kind:    bridgev1.CallbackKind_CALLBACK_KIND_MCP_OAUTH,
		config:  withFar("Authorization", "Bearer fresh", nil),
		ask:     farAfter("mcp.oauth_completed"),
		request: `server_name:"far"`,
		accept: &cliv1.McpOauthPendingRequestResponse{Variant: &cliv1.McpOauthPendingRequestResponse_Token{
			Token: &cliv1.McpOauthPendingRequestResponseToken{AccessToken: "fresh"},
		}},
		accepted: `CONNECTED, came with "Bearer fresh"`,
		decline: &cliv1.McpOauthPendingRequestResponse{Variant: &cliv1.McpOauthPendingRequestResponse_Cancelled{
			Cancelled: &cliv1.McpOauthPendingRequestResponseCancelled{},
		}},
		declined: `NEEDS_AUTH, came with ""`,
		wrong:    &cliv1.McpOauthPendingRequestResponse{},
		silent:   `NEEDS_AUTH, came with ""`,
	},
	"MCP headers": {
		kind:   bridgev1.CallbackKind_CALLBACK_KIND_MCP_HEADERS,
		config: withFar("X-Key", "fresh", proto.Int64(60_000)),
		ask: func(st *harness.Scripted, s *copilot.Session) func() string {
			got := invoke(st, s, "session.mcp.restartServer", map[string]any{"serverName": "far"})
			return func() string { return fmt.Sprintf("%s, came with %q", got(), st.Far.Last()) }
		},
		request: `server_name:"far"`,
		accept: &cliv1.McpHeadersHandlePendingHeadersRefreshRequest{Variant: &cliv1.McpHeadersHandlePendingHeadersRefreshRequest_Headers{
			Headers: &cliv1.McpHeadersHandlePendingHeadersRefreshRequestHeaders{Headers: map[string]string{"X-Key": "fresh"}},
		}},
		accepted: `{}, came with "fresh"`, again: true,
		decline: &cliv1.McpHeadersHandlePendingHeadersRefreshRequest{Variant: &cliv1.McpHeadersHandlePendingHeadersRefreshRequest_None{
			None: &cliv1.McpHeadersHandlePendingHeadersRefreshRequestNone{},
		}},
		declined: `requires authentication, came with ""`, insists: true,
		wrong:  &cliv1.McpHeadersHandlePendingHeadersRefreshRequest{},
		silent: `requires authentication, came with ""`,
	},
}

// withFar has a session with an MCP server over HTTP that wants a header, and to which the CLI connects as soon as a
// participant provides headers.
func withFar(header, value string, refresh *int64) func(*harness.Scripted, *cliv1.SessionConfig) {
	return func(st *harness.Scripted, c *cliv1.SessionConfig) {
		st.Far = harness.NewMCPEndpoint(st.T, header, value)
		c.McpServers = map[string]*cliv1.McpSerializableServerConfig{"far": {Variant: &cliv1.McpSerializableServerConfig_Http{
			Http: &cliv1.McpServerConfigHttp{
				ServerType:          cliv1.McpServerConfigHttpType_MCP_SERVER_CONFIG_HTTP_TYPE_HTTP,
				HeadersRefreshTtlMs: refresh,
				Url:                 st.Far.Server.URL + "/mcp", Tools: &cliv1.StringList{Items: []string{"*"}},
			},
		}}}
	}
}

// farAfter is what became of the server after an event that says what was decided: how it
// stands, and with which header the CLI came last.
func farAfter(decided string) func(*harness.Scripted, *copilot.Session) func() string {
	return func(st *harness.Scripted, s *copilot.Session) func() string {
		st.T.Helper()
		return func() string { return fmt.Sprintf("%s, came with %q", statusAfter(st, s, decided), st.Far.Last()) }
	}
}

// statusAfter is the state that the server comes to after an event that says what was
// decided. With a token the CLI tries again, but 1.0.102 may first say once more that the
// server lacks one.
func statusAfter(st *harness.Scripted, s *copilot.Session, decided string) string {
	st.T.Helper()
	decision := st.First(s, decided)
	ends := func(status cliv1.McpServerStatus) bool {
		token := decision.GetEvent().GetMcpOauthCompleted().GetOutcome() == cliv1.McpOauthCompletionOutcome_MCP_OAUTH_COMPLETION_OUTCOME_TOKEN
		return status != cliv1.McpServerStatus_MCP_SERVER_STATUS_PENDING &&
			(!token || status != cliv1.McpServerStatus_MCP_SERVER_STATUS_NEEDS_AUTH)
	}
	for ev, err := range s.Events(st.Ctx, copilot.After(decision.GetPosition()),
		copilot.OfTypes("session.mcp_server_status_changed")) {
		if err != nil {
			st.T.Fatal(err)
		}
		if status := ev.GetEvent().GetSessionMcpServerStatusChanged().GetStatus(); ends(status) {
			return status.String()
		}
	}
	return "the events ended"
}

func TestMCPQuestions(t *testing.T) {
	t.Parallel()
	host := harness.NewOwnFixture(t, harness.Echo, harness.HostConfig{Raw: true}).Host
	for name, q := range mcpQuestions {
		t.Run(name, func(t *testing.T) { q.test(t, host) })
	}
}
