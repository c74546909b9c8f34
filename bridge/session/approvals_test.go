package session

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// What an approval becomes after a load allows what it said, and never more.
func TestApprovalsAreRules(t *testing.T) {
	t.Parallel()
	for approval, want := range map[string]string{
		`{"kind":"commands","commandIdentifiers":["git status","ls"]}`: `[{"kind":"shell","argument":"git status"}] [{"kind":"shell","argument":"ls"}]`,
		`{"kind":"commands","commandIdentifiers":["ls","git:*"]}`:      "",
		`{"kind":"commands","commandIdentifiers":[""]}`:                "",
		`{"kind":"commands"}`:                             "",
		`{"kind":"custom-tool","toolName":"works"}`:       `[{"kind":"custom-tool","argument":"works"}]`,
		`{"kind":"custom-tool"}`:                          "",
		`{"kind":"write"}`:                                `[{"kind":"write","argument":null}]`,
		`{"kind":"mcp","serverName":"s","toolName":null}`: "",
		`{"kind":"extension-management"}`:                 "",
		`{"kind":7}`:                                      "",
	} {
		s := New(Config{ID: "s1", Host: &rig{t: t}})
		for _, kind := range []string{"approved-for-session", "approved-for-session", "approved", "denied-interactively-by-user"} {
			s.mu.Lock()
			s.approved(&journal.Record{Type: "permission.completed", JSON: json.RawMessage(
				`{"type":"permission.completed","data":{"requestId":"r","result":{"kind":"` + kind + `","approval":` + approval + `}},"id":"1"}`)})
			s.mu.Unlock()
			if kind != "approved-for-session" {
				continue
			}
			var got []string
			for _, one := range s.settings {
				if one.method != modifyRules || one.params.String("scope") != "session" {
					t.Errorf("%s: %v", approval, one)
				}
				got = append(got, string(one.params.Get("add")))
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%s is told as %q, want %q", approval, got, want)
			}
		}
		other := New(Config{ID: "s2", Host: &rig{t: t}})
		other.mu.Lock()
		other.approved(&journal.Record{Type: "permission.completed", JSON: json.RawMessage(`{"type":"permission.completed","data":{"result":{"kind":"approved","approval":` + approval + `}},"id":"1"}`)})
		other.mu.Unlock()
		if len(other.settings) > 0 {
			t.Errorf("%s once is remembered", approval)
		}
	}
}
