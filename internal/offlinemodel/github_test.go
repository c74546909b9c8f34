package offlinemodel

import "testing"

func TestGitHubUser(t *testing.T) {
	t.Parallel()
	server := start(t, Options{Script: &Script{GitHub: GitHub{Users: []User{
		{Token: "a", Login: "ann", Plan: "business", NoMCP: true,
			Extra: map[string]any{"extra": 1, "chat_enabled": false}},
		{Token: "*", Login: "other", Quota: map[string]Quota{"chat": {Entitlement: -1, PercentRemaining: 100}}},
	}}}})
	strict := scoped(t, server, &Script{GitHub: GitHub{Users: []User{{Token: "b", Login: "ben"}}}})
	open := start(t, Options{})
	tests := []struct {
		url, token, path string
		status           int
		want             any
	}{
		{server.URL(), "a", "login", 200, "ann"},
		{server.URL(), "a", "copilot_plan", 200, "business"},
		{server.URL(), "a", "is_mcp_enabled", 200, false},
		{server.URL(), "a", "chat_enabled", 200, false},
		{server.URL(), "a", "endpoints.api", 200, server.URL()},
		{server.URL(), "z", "login", 200, "other"},
		{server.URL(), "z", "quota_snapshots.chat.unlimited", 200, true},
		{server.URL(), "b", "login", 200, "ben"},
		{strict.URL(), "b", "endpoints.api", 200, strict.URL()},
		{strict.URL(), "z", "message", 401, "Bad credentials"},
		{open.URL(), "z", "login", 200, "offline-user"},
		{open.URL(), "", "message", 401, "Bad credentials"},
	}
	for _, test := range tests {
		status, text := fetch(t, "GET", test.url+userPath, "", "authorization: token "+test.token)
		if got := lookup(parse(t, text), test.path); status != test.status || got != test.want {
			t.Errorf("token %q: %d, %s is %v, want %v", test.token, status, test.path, got, test.want)
		}
	}
	if status, _ := fetch(t, "GET", open.URL()+"/copilot_internal/managed_settings", ""); status != 404 {
		t.Errorf("managed settings: %d", status)
	}
}

func TestModels(t *testing.T) {
	t.Parallel()
	server := start(t, Options{Script: &Script{Models: []Model{
		{ID: "a", Name: "A", Endpoints: []string{"/responses"}, NoVision: true, ReasoningEfforts: []string{"low"},
			ContextTokens: 1, PromptTokens: 2, OutputTokens: 3, Vendor: "v",
			Extra: map[string]any{"billing": map[string]any{"multiplier": 2}}},
		{ID: "b"},
	}}})
	_, text := fetch(t, "GET", server.OpenAIBaseURL()+"/models", "")
	list := parse(t, text)
	for path, want := range map[string]any{
		"object": "list", "data.0.id": "a", "data.0.name": "A", "data.0.vendor": "v",
		"data.0.supported_endpoints.0":        "/responses",
		"data.0.capabilities.supports.vision": false, "data.0.capabilities.supports.reasoning_effort.0": "low",
		"data.0.capabilities.limits.max_context_window_tokens": 1.0,
		"data.0.capabilities.limits.max_prompt_tokens":         2.0,
		"data.0.capabilities.limits.max_output_tokens":         3.0, "data.0.billing.multiplier": 2.0,
		"data.1.name": "b", "data.1.supported_endpoints": nil, "data.1.capabilities.supports.vision": true,
	} {
		if got := lookup(list, path); got != want {
			t.Errorf("%s is %v, want %v", path, got, want)
		}
	}
	_, text = fetch(t, "POST", server.URL()+autoSessionPath, "{}")
	if got := lookup(parse(t, text), "selected_model"); got != "a" {
		t.Errorf("auto session %s", text)
	}
	if _, text := fetch(t, "GET", start(t, Options{}).URL()+"/models", ""); lookup(parse(t, text),
		"data.0.id") != "offline-demo" {
		t.Errorf("models of the demo: %s", text)
	}
}
