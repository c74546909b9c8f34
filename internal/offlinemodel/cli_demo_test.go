package offlinemodel

import (
	"context"
	"strings"
	"testing"
)

// TestCLIDemo plays the built-in script to the real CLI: a tool of the caller, a shell command that needs a permission,
// and the same questions in a session that has neither tool. What the script proposes works in the session that asks.
func TestCLIDemo(t *testing.T) {
	t.Parallel()
	server := start(t, Options{})
	c := startCLI(t)
	provider := map[string]any{
		"type": "openai", "wireApi": "completions", "baseUrl": server.OpenAIBaseURL(), "apiKey": "any",
	}
	full := c.session(map[string]any{"model": "offline-demo", "tools": weatherTool, "provider": provider})
	plain := c.session(map[string]any{"model": "offline-demo", "provider": provider})
	bare := c.session(map[string]any{"model": "offline-demo", "provider": provider, "excludedTools": []string{"bash"}})
	for _, tc := range []struct{ session, prompt, want string }{
		{full, "What is the weather like in Lisbon?", "what I was told: sunny in Lisbon"},
		{full, "Please run `echo 4$((1+1))`.", "came back:\n\n42"},
		{full, "Hello there", "You said: Hello there\n\nI am a script, not a model. Ask me what the weather"},
		{plain, "What is the weather like in Lisbon?", "no tool that knows the weather in Lisbon"},
		{plain, "Hello there", "I am a script, not a model. Ask me to run `date`."},
		{bare, "Hello there", "You said: Hello there\n\nI am a script, not a model."},
		{bare, "Please run `date`.", "no tool that runs commands"},
	} {
		events := c.turn(tc.session, map[string]any{"prompt": tc.prompt})
		if got := joined(events, "assistant.message", "content"); !strings.Contains(got, tc.want) {
			t.Errorf("%q is answered %q, want %q", tc.prompt, got, tc.want)
		}
		if deltas := joined(events, "assistant.message_delta", "deltaContent"); !strings.Contains(deltas, tc.want) {
			t.Errorf("deltas of %q say %q", tc.prompt, deltas)
		}
	}
}

// TestCLIContext sends content that the CLI wraps in its notes: attachments, and a change of mode.
func TestCLIContext(t *testing.T) {
	t.Parallel()
	const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
	server := start(t, Options{Script: &Script{
		Rules:   []Rule{{When: When{Images: 1, Turn: 1}, Reply: []Step{{Text: "seen"}}}},
		Default: &Rule{Reply: []Step{{Text: "{{user}}"}}},
	}})
	c := startCLI(t)
	for name, provider := range map[string]map[string]any{
		"completions": {"type": "openai", "wireApi": "completions", "baseUrl": server.OpenAIBaseURL(), "apiKey": "any"},
		"responses":   {"type": "openai", "wireApi": "responses", "baseUrl": server.OpenAIBaseURL(), "apiKey": "any"},
		"anthropic":   {"type": "anthropic", "baseUrl": server.AnthropicBaseURL(), "apiKey": "any"},
	} {
		t.Run(name, func(t *testing.T) {
			server.Forget()
			session := c.session(map[string]any{"model": "m", "provider": provider, "requestExitPlanMode": true})
			events := c.turn(session, map[string]any{"prompt": "look", "attachments": []any{
				map[string]any{"type": "directory", "path": c.dir, "displayName": "d"},
				map[string]any{"type": "selection", "filePath": c.dir + "/a.txt", "displayName": "a.txt", "text": "x"},
				map[string]any{"type": "blob", "data": pixel, "mimeType": "image/png", "displayName": "p.png"},
			}})
			if got := joined(events, "assistant.message", "content"); got != "seen" {
				t.Errorf("answered %q", got)
			}
			first := server.ModelRequests()[0]
			if got := first.UserText(); got != "look\np.png" && got != "look" {
				t.Errorf("user text %q", got)
			}
			if images := first.Images(); len(images) != 1 || images[0].MediaType != "image/png" ||
				len(images[0].Data) != 70 {
				t.Errorf("images %d", len(images))
			}
			events = c.turn(session, map[string]any{"prompt": "plan this", "agentMode": "plan"})
			if got := joined(events, "assistant.message", "content"); !strings.HasSuffix(got, "plan this") ||
				strings.Contains(got, "<") {
				t.Errorf("answered %q", got)
			}
		})
	}
}

// TestCLIAbort aborts a turn that the script holds, breaks another off, and
// uses the session again.
func TestCLIAbort(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), cliTimeout)
	defer cancel()
	server := start(t, Options{Script: &Script{
		Rules: []Rule{
			{Name: "hang", When: When{User: "hang"}, Reply: []Step{{Text: "I begin"}, {Hang: true}}},
			{Name: "drop", When: When{User: "break"}, Times: 1, Reply: []Step{{Text: "I begin"}, {Drop: true}}},
		},
		Default: &Rule{Reply: []Step{{Text: "well"}}},
	}})
	c := startCLI(t)
	session := c.session(map[string]any{"model": "m", "provider": map[string]any{
		"type": "openai", "wireApi": "completions", "baseUrl": server.OpenAIBaseURL(), "apiKey": "any",
	}})
	c.call("session.send", map[string]any{"sessionId": session, "prompt": "hang"})
	if _, err := server.WaitRequests(ctx, 1); err != nil {
		t.Fatal(err)
	}
	c.call("session.abort", map[string]any{"sessionId": session})
	c.finish(session)
	for _, want := range []struct {
		rule    string
		outcome Outcome
		prompt  string
	}{{"hang", OutcomeClientGone, "break"}, {"drop", OutcomeDropped, "again"}} {
		if _, err := server.WaitRequest(ctx, func(r *Request) bool {
			return r.Rule == want.rule && r.Outcome == want.outcome
		}); err != nil {
			t.Fatal(err)
		}
		events := c.turn(session, map[string]any{"prompt": want.prompt})
		if got := joined(events, "assistant.message", "content"); got != "well" {
			t.Errorf("%q is answered %q in %q", want.prompt, got, types(events))
		}
	}
}
