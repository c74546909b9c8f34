package session

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
)

func TestIDs(t *testing.T) {
	t.Parallel()
	for result, want := range map[string][]string{
		`{"messageId":"a"}`:        {"a"},
		`{"messageIds":["a","b"]}`: {"a", "b"},
		`{}`:                       nil,
		`[]`:                       nil,
	} {
		if got := messageIDs(json.RawMessage(result)); !slices.Equal(got, want) {
			t.Errorf("IDs(%s) = %v, want %v", result, got, want)
		}
	}
}

// The user's text is stored under any member name; secrets beside it are not.
func TestWithoutSecrets(t *testing.T) {
	t.Parallel()
	const params = `{"prompt":"my apiKey","attachments":[{"apiKey":"kept"}],"requestHeaders":{"Authorization":"hidden"}}`
	got, lacks := withoutSecrets(json.RawMessage(params))
	if text := string(got); !strings.Contains(text, `"apiKey":"kept"`) || strings.Contains(text, "hidden") || len(lacks) == 0 {
		t.Errorf("on disk is %s, which lacks %v", text, lacks)
	}
}

func TestLostBecause(t *testing.T) {
	t.Parallel()
	unread := errors.New("no history")
	for name, test := range map[string]struct {
		verdict  outbox.Verdict
		unread   error
		obstacle string
		want     string
	}{
		"sent again":     {verdict: outbox.Untaken},
		"the rest of it": {verdict: outbox.Partly},
		"forgotten":      {verdict: outbox.Forgotten, obstacle: "x", want: "before it stored it"},
		"overtaken":      {verdict: outbox.Overtaken, want: "later accepted another"},
		"not read":       {verdict: outbox.Untaken, unread: unread, obstacle: "x", want: "no history"},
		"an obstacle":    {verdict: outbox.Partly, obstacle: "its secrets are gone", want: "its secrets are gone"},
	} {
		if got := lostBecause(test.verdict, test.unread, test.obstacle); got == "" != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
