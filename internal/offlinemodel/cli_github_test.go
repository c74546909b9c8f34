package offlinemodel

import (
	"encoding/json"
	"slices"
	"testing"
	"time"
)

// startGitHubCLI is a CLI that takes the endpoint for GitHub.
func startGitHubCLI(t *testing.T, server *Server) *cli {
	t.Helper()
	return startCLI(t, "COPILOT_API_URL="+server.URL(), "COPILOT_DEBUG_GITHUB_API_URL="+server.URL())
}

// gitHubModels are offered by each of the paths that GitHub's API has.
var gitHubModels = []Model{
	{ID: "claude-sonnet-4.5", Name: "By completions"},
	{ID: "gpt-5.4", Name: "By responses", Endpoints: []string{"/responses"}, ReasoningEfforts: []string{"low", "high"}},
	{ID: "claude-opus-4.6", Name: "By messages", Endpoints: []string{"/v1/messages"}},
}

// TestCLIGitHub has the real CLI work without a provider: the endpoint is
// GitHub's API, and a scope is found by the session's token.
func TestCLIGitHub(t *testing.T) {
	t.Parallel()
	server := start(t, Options{})
	c := startGitHubCLI(t, server)
	for model, api := range map[string]API{
		"claude-sonnet-4.5": APICompletions, "gpt-5.4": APIResponses, "claude-opus-4.6": APIAnthropic,
	} {
		t.Run(model, func(t *testing.T) {
			script := weather()
			script.Models = gitHubModels
			script.GitHub = GitHub{Users: []User{{Token: "token-" + model, Login: "octocat", Quota: map[string]Quota{
				"premium_interactions": {Entitlement: 300, PercentRemaining: 42.5, ResetDate: "2030-01-01T00:00:00Z"},
			}}}}
			scope := scoped(t, server, script)
			session := c.session(map[string]any{"model": model, "gitHubToken": "token-" + model, "tools": weatherTool})
			events := c.turn(session, map[string]any{"prompt": "What is the weather?"})
			if got := joined(events, "assistant.message", "content"); got != "Looking.It is sunny in Rome." {
				t.Errorf("the assistant said %q", got)
			}
			if got := joined(events, "assistant.reasoning", "content"); got != "I should look." {
				t.Errorf("the assistant thought %q", got)
			}
			for _, r := range scope.ModelRequests() {
				if r.API != api || r.Model != model || r.Token() != "token-"+model {
					t.Errorf("request %d by %s for %q with %q", r.Number, r.API, r.Model, r.Token())
				}
			}
			listed := c.call("models.list", map[string]any{"gitHubToken": "token-" + model})
			var ids []string
			for _, m := range listed["models"].([]any) {
				ids = append(ids, m.(map[string]any)["id"].(string))
			}
			if !slices.Contains(ids, "gpt-5.4") || !slices.Contains(ids, model) {
				t.Errorf("models %q", ids)
			}
			quota := c.call("account.getQuota", map[string]any{"gitHubToken": "token-" + model})
			if got := lookup(quota, "quotaSnapshots.premium_interactions.remainingPercentage"); got != 42.5 {
				t.Errorf("quota %v", quota)
			}
		})
	}
}

// TestCLIAutoModeSwitch has the real CLI ask whether to change to auto mode.
// It does after a 429 with such a code, once its retries are used up: 1.0.81
// always makes five, 1.0.102 none when the time to wait is long.
func TestCLIAutoModeSwitch(t *testing.T) {
	t.Parallel()
	// Auto mode gets the first model, by the path that it is offered on.
	models := []Model{gitHubModels[1], gitHubModels[0]}
	script := &Script{Models: models, Rules: []Rule{{
		Name: "limited", When: When{User: "first"}, Times: 6,
		Error: &Failure{Status: 429, Code: "user_weekly_rate_limited", Message: "weekly limit",
			RetryAfter: time.Second},
	}}, Default: &Rule{Reply: []Step{{Text: "by {{model}}"}}, Headers: map[string]string{
		"x-quota-snapshot-premium_interactions": "ent=300&ov=0.0&ovPerm=true&rem=90.5&rst=2030-01-01T00:00:00Z",
	}}}
	server := start(t, Options{Script: script})
	c := startGitHubCLI(t, server)
	asked := make(chan json.RawMessage, 10)
	c.onRequest = func(method string, params json.RawMessage) any {
		if method == "autoModeSwitch.request" {
			asked <- params
		}
		return map[string]any{"response": "yes"}
	}
	session := c.session(map[string]any{
		"model": "claude-sonnet-4.5", "gitHubToken": "any", "requestAutoModeSwitch": true,
	})
	events := c.turn(session, map[string]any{"prompt": "first"})
	if got := joined(events, "session.error", "errorCode"); got != "user_weekly_rate_limited" {
		t.Errorf("error code %q in %q", got, types(events))
	}
	if got := joined(events, "session.model_change", "newModel"); got != "auto" {
		t.Errorf("new model %q", got)
	}
	select {
	case params := <-asked:
		if got := (event{Data: params}).get("retryAfterSeconds"); got != 1.0 {
			t.Errorf("asked with %s", params)
		}
	default:
		t.Error("the CLI did not ask")
	}
	events = c.turn(session, map[string]any{"prompt": "second"})
	if got := joined(events, "assistant.message", "content"); got != "by gpt-5.4" {
		t.Errorf("the assistant said %q", got)
	}
	for _, e := range events {
		if e.Type == "assistant.usage" {
			if got := e.get("quotaSnapshots.premium_interactions.remainingPercentage"); got != 90.5 {
				t.Errorf("quota in usage %v", got)
			}
		}
	}
	if got := len(server.ModelRequests()); got != 7 {
		t.Errorf("%d model requests, want 6 refused and 1 answered", got)
	}
}
