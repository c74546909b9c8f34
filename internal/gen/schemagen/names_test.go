package schemagen

import "testing"

func TestNames(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ in, field, json string }{
		{"sessionId", "session_id", "sessionId"},
		{"gitHubToken", "github_token", "githubToken"},
		{"mcpOAuthTokenStorage", "mcp_oauth_token_storage", "mcpOauthTokenStorage"},
		{"_meta", "meta", "meta"},
		{"origin-tracker", "origin_tracker", "originTracker"},
		{"stop_hook_active", "stop_hook_active", "stopHookActive"},
		{"HTTPRequest", "http_request", "httpRequest"},
		{"descriptor", "descriptor_", "descriptor"},
		{"json_extra", "json_extra_", "jsonExtra"},
		{"2fa", "v2fa", "v2fa"},
		{"*", "value", "value"},
	} {
		got := fieldName(tc.in)
		if got != tc.field || lowerCamel(got) != tc.json {
			t.Errorf("%q: got %q and %q, want %q and %q", tc.in, got, lowerCamel(got), tc.field, tc.json)
		}
	}
	for in, want := range map[string]string{"GitHubKind": "GIT_HUB_KIND", "MCPServerState": "MCP_SERVER_STATE",
		"UIMode": "UI_MODE"} {
		if got := enumPrefix(in); got != want {
			t.Errorf("prefix of %q: got %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{"handlePendingToolCall": "HandlePendingToolCall", "mcp-server": "McpServer",
		"gitHubAuth": "GitHubAuth"} {
		if got := pascal(in); got != want {
			t.Errorf("pascal of %q: got %q, want %q", in, got, want)
		}
	}
}

func TestUnits(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		field Field
		want  string
	}{
		{Field{Name: "timeout_ms", Type: "int64"}, "In milliseconds."},
		{Field{Name: "seconds", Type: "double"}, "In seconds."},
		{Field{Name: "total_bytes", Type: "int64"}, "In bytes."},
		{Field{Name: "percentage", Type: "double"}, "In percent."},
		{Field{Name: "show_minutes", Type: "bool"}, ""},
		{Field{Name: "tool_call_id", Type: "string"}, ""},
		{Field{Name: "created_at", Type: timestampType}, ""},
	} {
		if got := unit(&tc.field); got != tc.want {
			t.Errorf("%q: got %q, want %q", tc.field.Name, got, tc.want)
		}
	}
}
