package offlinemodel

import (
	"strings"
	"testing"
)

// weather is a script that needs a tool to answer.
func weather() *Script {
	return &Script{Rules: []Rule{
		{When: When{User: "weather"}, Reply: []Step{
			{Reasoning: "I should look."},
			{Text: "Looking.", ChunkSize: 3},
			{ToolCall: &ToolCall{Name: "get_weather", Arguments: map[string]any{"city": "Paris"}}},
			{ToolCall: &ToolCall{Name: "get_weather", Arguments: map[string]any{"city": "Rome"}}},
		}},
		{When: When{ToolResult: &ToolResultCondition{Name: "get_weather", Contains: "Rome"}},
			Reply: []Step{{Text: "It is {{tool_result}}."}}},
	}, Default: &Rule{Reply: []Step{{Text: "echo: {{user}}"}}}}
}

var weatherTool = []any{map[string]any{
	"name": "get_weather", "description": "the weather", "parameters": map[string]any{
		"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}},
	},
}}

// TestCLIProviders has the real CLI do a turn with two parallel tool calls over
// every form of provider it offers.
func TestCLIProviders(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		provider  func(s *Scope) map[string]any
		api       API
		path      string
		streaming bool
	}{
		{"completions", func(s *Scope) map[string]any {
			return map[string]any{"type": "openai", "wireApi": "completions", "baseUrl": s.OpenAIBaseURL(),
				"apiKey": "k"}
		}, APICompletions, "/v1/chat/completions", true},
		{"completions plain", func(s *Scope) map[string]any {
			return map[string]any{"type": "openai", "wireApi": "completions", "baseUrl": s.OpenAIBaseURL(),
				"apiKey": "k"}
		}, APICompletions, "/v1/chat/completions", false},
		{"responses", func(s *Scope) map[string]any {
			return map[string]any{"type": "openai", "wireApi": "responses", "baseUrl": s.OpenAIBaseURL(), "apiKey": "k"}
		}, APIResponses, "/v1/responses", true},
		{"responses plain", func(s *Scope) map[string]any {
			return map[string]any{"type": "openai", "wireApi": "responses", "baseUrl": s.OpenAIBaseURL(), "apiKey": "k"}
		}, APIResponses, "/v1/responses", false},
		{"anthropic", func(s *Scope) map[string]any {
			return map[string]any{"type": "anthropic", "baseUrl": s.AnthropicBaseURL(), "apiKey": "k"}
		}, APIAnthropic, "/v1/messages", true},
		{"anthropic plain", func(s *Scope) map[string]any {
			return map[string]any{"type": "anthropic", "baseUrl": s.AnthropicBaseURL(), "apiKey": "k"}
		}, APIAnthropic, "/v1/messages", false},
		{"azure deployment", func(s *Scope) map[string]any {
			return map[string]any{"type": "azure", "baseUrl": s.AzureBaseURL(), "apiKey": s.Name(),
				"azure": map[string]any{"apiVersion": "2024-10-21"}}
		}, APICompletions, "/openai/deployments/offline-model/chat/completions", true},
		{"azure v1", func(s *Scope) map[string]any {
			return map[string]any{"type": "azure", "baseUrl": s.AzureBaseURL(), "apiKey": s.Name()}
		}, APICompletions, "/openai/v1/chat/completions", true},
		{"azure responses", func(s *Scope) map[string]any {
			return map[string]any{"type": "azure", "wireApi": "responses", "baseUrl": s.AzureBaseURL(),
				"apiKey": s.Name(),
				"azure":  map[string]any{"apiVersion": "2024-10-21"}}
		}, APIResponses, "/openai/responses", true},
	}
	server := start(t, Options{})
	c := startCLI(t)
	for _, test := range tests {
		// One after another: they share the CLI and its stream of events.
		t.Run(test.name, func(t *testing.T) {
			scope := scoped(t, server, weather())
			session := c.session(map[string]any{
				"model": DefaultModel, "provider": test.provider(scope), "tools": weatherTool,
				"streaming": test.streaming,
			})
			events := c.turn(session, map[string]any{"prompt": "What is the weather?"})
			if got := joined(events, "assistant.message", "content"); got != "Looking.It is sunny in Rome." {
				t.Errorf("the assistant said %q", got)
			}
			if got := joined(events, "assistant.reasoning", "content"); got != "I should look." {
				t.Errorf("the assistant thought %q", got)
			}
			requests := scope.ModelRequests()
			if len(requests) != 2 {
				t.Fatalf("%d model requests, want 2", len(requests))
			}
			first, second := requests[0], requests[1]
			if first.API != test.api || first.Path != test.path || first.Model != DefaultModel ||
				first.Token() != test.provider(scope)["apiKey"] {
				t.Errorf("request by %s %s for %q with %q", first.API, first.Path, first.Model, first.Token())
			}
			if first.UserText() != "What is the weather?" || !strings.Contains(first.System, "Copilot") {
				t.Errorf("user %q, system %.80q", first.UserText(), first.System)
			}
			if results := second.ToolResults(); len(results) != 2 || results[0].Text != "sunny in Paris" ||
				results[0].ToolName != "get_weather" {
				t.Errorf("tool results %+v", results)
			}
		})
	}
}
