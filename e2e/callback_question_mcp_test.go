package e2e

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// withMCP has a session with an MCP server.
func withMCP(name string, server func(*stage) *cliv1.McpSerializableServerConfig) func(*stage, *cliv1.SessionConfig) {
	return func(st *stage, c *cliv1.SessionConfig) {
		c.McpServers = map[string]*cliv1.McpSerializableServerConfig{name: server(st)}
	}
}

// mcpQuestions are what the CLI asks because of an MCP server.
var mcpQuestions = map[string]question{
	"sampling": {
		kind:   bridgev1.CallbackKind_CALLBACK_KIND_SAMPLING,
		config: withMCP("loud", func(st *stage) *cliv1.McpSerializableServerConfig { return mcpServer(st.t) }),
		rules: []offlinemodel.Rule{
			onUser("ask", call("loud-ponder", map[string]any{"text": "What is it?"})),
			onResult("loud-ponder", say("told: {{tool_result}}")),
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
		ask: func(st *stage, s *copilot.Session) func() string {
			got := st.invoke(s, "session.mcp.restartServer", map[string]any{"serverName": "far"})
			return func() string { return fmt.Sprintf("%s, came with %q", got(), st.far.last()) }
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

// withFar has a session with an MCP server over HTTP that wants a header, and to which the
// CLI connects as soon as somebody cares for what it wants.
func withFar(header, value string, refresh *int64) func(*stage, *cliv1.SessionConfig) {
	return func(st *stage, c *cliv1.SessionConfig) {
		st.far = newMCPEndpoint(st.t, header, value)
		c.McpServers = map[string]*cliv1.McpSerializableServerConfig{"far": {Variant: &cliv1.McpSerializableServerConfig_Http{
			Http: &cliv1.McpServerConfigHttp{
				Type: cliv1.McpServerConfigHttpType_MCP_SERVER_CONFIG_HTTP_TYPE_HTTP, HeadersRefreshTtlMs: refresh,
				Url: st.far.server.URL + "/mcp", Tools: &cliv1.StringList{Items: []string{"*"}},
			},
		}}}
	}
}

// farAfter is what became of the server after an event that says what was decided: how it
// stands, and with which header the CLI came last.
func farAfter(decided string) func(*stage, *copilot.Session) func() string {
	return func(st *stage, s *copilot.Session) func() string {
		st.t.Helper()
		return func() string { return fmt.Sprintf("%s, came with %q", statusAfter(st, s, decided), st.far.last()) }
	}
}

// statusAfter is the state that the server comes to after an event that says what was
// decided. With a token the CLI tries again, but 1.0.102 may first say once more that the
// server lacks one.
func statusAfter(st *stage, s *copilot.Session, decided string) string {
	st.t.Helper()
	decision := st.first(s, decided)
	ends := func(status cliv1.McpServerStatus) bool {
		token := decision.GetEvent().GetMcpOauthCompleted().GetOutcome() == cliv1.McpOauthCompletionOutcome_MCP_OAUTH_COMPLETION_OUTCOME_TOKEN
		return status != cliv1.McpServerStatus_MCP_SERVER_STATUS_PENDING &&
			(!token || status != cliv1.McpServerStatus_MCP_SERVER_STATUS_NEEDS_AUTH)
	}
	for ev, err := range s.Events(st.ctx, copilot.After(decision.GetPosition()), copilot.OfTypes("session.mcp_server_status_changed")) {
		if err != nil {
			st.t.Fatal(err)
		}
		if status := ev.GetEvent().GetSessionMcpServerStatusChanged().GetStatus(); ends(status) {
			return status.String()
		}
	}
	return "the events ended"
}

func TestMCPQuestions(t *testing.T) {
	t.Parallel()
	host := newOwnRig(t, echo, hostConfig{raw: true}).host
	for name, q := range mcpQuestions {
		t.Run(name, func(t *testing.T) { q.test(t, host) })
	}
}
