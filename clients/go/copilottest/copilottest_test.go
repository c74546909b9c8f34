package copilottest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestScript(t *testing.T) {
	t.Parallel()
	base := Say("hi")
	rules := append(Call("weather", "get_weather", map[string]string{"city": "Paris"}, "It says: {{tool_result}}"),
		Reply(WaitFor("go"), Text("gone"), ToolCall("done", nil)).When("turn", 2).Times(1).With("name", "late"), base)
	_ = base.WhenUser("changes a copy")
	got, err := script(rules)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"default":{"reply":[{"text":"You said: {{user}}"}]},"rules":[` +
		`{"reply":[{"tool_call":{"arguments":{"city":"Paris"},"name":"get_weather"}}],"when":{"user":"weather"}},` +
		`{"reply":[{"text":"It says: {{tool_result}}"}],"when":{"tool_result":{"name":"get_weather"}}},` +
		`{"name":"late","reply":[{"wait_for":"go"},{"text":"gone"},{"tool_call":{"name":"done"}}],"times":1,` +
		`"when":{"turn":2}},{"reply":[{"text":"hi"}]}]}`
	if string(got) != want {
		t.Errorf("script:\n%s\nwant:\n%s", got, want)
	}
	if !json.Valid(got) {
		t.Error("the script is no JSON")
	}
	if _, err := script([]Rule{Reply(ToolCall("x", make(chan int)))}); err == nil {
		t.Error("a channel as arguments passed")
	}
}

// A test without a server is skipped, and fails where it is required.
func TestWithoutServer(t *testing.T) {
	dir := t.TempDir()
	for required, want := range map[string]string{"": "skipped", "1": "failed"} {
		t.Setenv(RequiredEnv, required)
		done := make(chan *recorder)
		go func() {
			r := &recorder{TB: t}
			defer func() { done <- r }()
			Config{Binary: filepath.Join(dir, "none")}.Start(r)
		}()
		if r := <-done; r.ended != want || !strings.Contains(r.text, "none") {
			t.Errorf("required %q: %s %s", required, r.ended, r.text)
		}
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
}
