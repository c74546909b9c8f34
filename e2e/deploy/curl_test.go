package deploy

import (
	"os"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
)

// TestCurl runs the lines of docs/web.md as they are written.
func TestCurl(t *testing.T) {
	t.Parallel()
	harness.Installed(t, "curl", "")
	lines := markedLines(t, "curl", "docs/web.md")
	wanted := []string{`"protocolVersion":3`, `"sessionId":"s"`, `"text":"You said: Hello`, `"sessions":[`,
		`SESSION_MODE_INTERACTIVE`, `"status":"TURN_STATUS_COMPLETED"`, `"type":"assistant.message"`, `"caughtUp":{}`}
	if len(lines) != len(wanted) {
		t.Fatalf("docs/web.md has %d lines to run, %d are known", len(lines), len(wanted))
	}
	const token = "a-token-of-16-or-more"
	r := harness.NewOwnFixture(t, harness.Echo, harness.HostConfig{Change: func(c *app.Config) {
		c.OfflineModel, c.Token, c.WebListen = app.OfflineDefault, token, "127.0.0.1:0"
	}})
	s := &tour{Fixture: r, vars: map[string]string{"COPILOT_GRPC_TOKEN": token, "WEB": r.Host.Web,
		"PATH": os.Getenv("PATH")}}
	for i, line := range lines {
		t.Log(line)
		if strings.Contains(line, "/Subscribe") || strings.Contains(line, "/WatchPending") {
			s.watch(line, wanted[i])
			continue
		}
		if out := string(s.run(line)); !strings.Contains(strings.ReplaceAll(out, ": ", ":"), wanted[i]) &&
			!strings.Contains(out, wanted[i]) {
			t.Errorf("%s\ngives\n%s", line, out)
		}
	}
}
