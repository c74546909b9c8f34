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
	for in, want := range map[string]string{"GitHubKind": "GIT_HUB_KIND", "MCPServerState": "MCP_SERVER_STATE", "UIMode": "UI_MODE"} {
		if got := enumPrefix(in); got != want {
			t.Errorf("prefix of %q: got %q, want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{"handlePendingToolCall": "HandlePendingToolCall", "mcp-server": "McpServer", "gitHubAuth": "GitHubAuth"} {
		if got := pascal(in); got != want {
			t.Errorf("pascal of %q: got %q, want %q", in, got, want)
		}
	}
}

func TestPhrases(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		field Field
		want  string
	}{
		{Field{Name: "input_tokens", Type: "int64"}, "Number of input tokens."},
		{Field{Name: "tool_count", Type: "int64"}, "Number of tools."},
		{Field{Name: "entry_count", Type: "int64"}, "Number of entries."},
		{Field{Name: "max_prompt_tokens", Type: "int64"}, "Largest number of prompt tokens."},
		{Field{Name: "tool_call_id", Type: "string"}, "Identifier of the tool call."},
		{Field{Name: "possible_paths", Type: "string", Repeated: true}, "The possible paths."},
		{Field{Name: "created_at", Type: timestampType}, "When it was created."},
		{Field{Name: "cache_expires_at", Type: timestampType}, "When the cache expires."},
		{Field{Name: "is_file", Type: "bool"}, "Whether it is file."},
		{Field{Name: "enable_skills", Type: "bool"}, "Whether skills are switched on."},
		{Field{Name: "headers", Type: "string", Map: true}, "The headers, by name."},
		{Field{Name: "model_display_name", Type: "string"}, "Name of the model to show to people."},
	} {
		if got := fieldPhrase(&tc.field, false); got != tc.want {
			t.Errorf("%q: got %q, want %q", tc.field.Name, got, tc.want)
		}
	}
	for in, want := range map[string]string{
		"session.plan.read": "Reads the plan.", "a.handlePendingToolCall": "Handles the pending tool call.",
		"session.queue.removeAt": "Removes at.", "x.sqliteExists": "", "tools.list": "Lists the tools.",
	} {
		if got := methodPhrase(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}
