package config

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
)

// After a load an approval allows the approved calls and no others.
func TestApprovalsAreRules(t *testing.T) {
	t.Parallel()
	for approval, want := range map[string]string{
		`{"kind":"commands","commandIdentifiers":["git status","ls"]}`: `[{"kind":"shell","argument":"git status"}] [{"kind":"shell","argument":"ls"}]`,
		`{"kind":"commands","commandIdentifiers":["ls","git:*"]}`:      "",
		`{"kind":"commands","commandIdentifiers":[""]}`:                "",
		`{"kind":"commands"}`:                                        "",
		`{"kind":"custom-tool","toolName":"works"}`:                  `[{"kind":"custom-tool","argument":"works"}]`,
		`{"kind":"custom-tool"}`:                                     "",
		`{"kind":"custom-tool","toolName":null}`:                     "",
		`{"kind":"read"}`:                                            `[{"kind":"read","argument":null}]`,
		`{"kind":"write"}`:                                           `[{"kind":"write","argument":null}]`,
		`{"kind":"memory"}`:                                          `[{"kind":"memory","argument":null}]`,
		`{"kind":"mcp","serverName":"s","toolName":"t"}`:             `[{"kind":"s","argument":"t"}]`,
		`{"kind":"mcp","serverName":"s","toolName":null}`:            `[{"kind":"s","argument":null}]`,
		`{"kind":"mcp","serverName":"s","toolName":""}`:              "",
		`{"kind":"mcp","serverName":"s","toolName":7}`:               "",
		`{"kind":"mcp","serverName":"s"}`:                            "",
		`{"kind":"mcp","serverName":"","toolName":"t"}`:              "",
		`{"kind":"mcp","serverName":"Shell","toolName":"t"}`:         "",
		`{"kind":"mcp","serverName":"url","toolName":null}`:          "",
		`{"kind":"mcp-sampling","serverName":"s"}`:                   `[{"kind":"mcp-sampling","argument":"s"}]`,
		`{"kind":"mcp-sampling"}`:                                    "",
		`{"kind":"extension-management"}`:                            `[{"kind":"extension-management","argument":null}]`,
		`{"kind":"extension-management","operation":"reload"}`:       `[{"kind":"extension-management","argument":"reload"}]`,
		`{"kind":"extension-permission-access","extensionName":"e"}`: `[{"kind":"extension-permission-access","argument":"e"}]`,
		`{"kind":"extension-permission-access"}`:                     "",
		`{"kind":"extension-env-access","extensionName":"e","environmentVariables":["B","A","B"]}`: `[{"kind":"extension-env-access","argument":"{\"version\":1,\"extensionName\":\"e\",\"environmentVariables\":[\"A\",\"B\"]}"}]`,
		`{"kind":"extension-env-access","extensionName":"e","environmentVariables":[]}`:            "",
		`{"kind":"extension-env-access","environmentVariables":["A"]}`:                             "",
		`{"kind":"workflow","approvalKey":"k"}`:                                                    `[{"kind":"workflow","argument":"k"}]`,
		`{"kind":"workflow"}`:                                                                      `[{"kind":"workflow","argument":null}]`,
		`{"kind":"factory","approvalKey":"k"}`:                                                     `[{"kind":"factory","argument":"k"}]`,
		`{"kind":"new","name":"n"}`:                                                                "",
		`{"kind":7}`:                                                                               "",
	} {
		var s State
		for _, kind := range []string{"approved-for-session", "approved-for-session", "approved", "denied-interactively-by-user"} {
			s.Approve(ApprovalsIn(&journal.Record{Type: "permission.completed", JSON: json.RawMessage(
				`{"type":"permission.completed","data":{"requestId":"r","result":{"kind":"` + kind + `","approval":` + approval + `}},"id":"1"}`)}))
			if got := strings.Join(s.rulesToTell(t), " "); got != want {
				t.Errorf("%s is told as %q after %s, want %q", approval, got, kind, want)
			}
		}
		once := ApprovalsIn(&journal.Record{Type: "permission.completed", JSON: json.RawMessage(`{"type":"permission.completed","data":{"result":{"kind":"approved","approval":` + approval + `}},"id":"1"}`)})
		if len(once) > 0 {
			t.Errorf("%s once is remembered", approval)
		}
	}
}

// rulesToTell are the rules that the next load tells.
func (s *State) rulesToTell(t *testing.T) (out []string) {
	t.Helper()
	for _, one := range s.Settings {
		if one.Method != modifyRules || one.Params.String("scope") != "session" {
			t.Errorf("remembered is %v", one)
		}
		out = append(out, string(one.Params.Get("add")))
	}
	return out
}

// The domain of a URL is in the answer alone.
func TestApprovedDomains(t *testing.T) {
	t.Parallel()
	const url = `{"promptRequest":{"kind":"url","url":"https://a.example/x"}}`
	const rule = `[{"kind":"url","argument":"https://a.example"}]`
	for name, c := range map[string]struct{ method, asked, answer, want string }{
		"for the session":  {callback.PermissionRequested, url, `{"result":{"kind":"approve-for-session","domain":"https://a.example"}}`, rule},
		"for good":         {callback.PermissionRequested, url, `{"result":{"kind":"approve-permanently","domain":"https://a.example"}}`, rule},
		"once":             {callback.PermissionRequested, url, `{"result":{"kind":"approve-once","domain":"https://a.example"}}`, ""},
		"refused":          {callback.PermissionRequested, url, `{"result":{"kind":"reject"}}`, ""},
		"without a domain": {callback.PermissionRequested, url, `{"result":{"kind":"approve-for-session"}}`, ""},
		"of a command": {callback.PermissionRequested, `{"promptRequest":{"kind":"commands"}}`,
			`{"result":{"kind":"approve-for-session","domain":"https://a.example"}}`, ""},
		"of a tool call": {callback.ToolRequested, url, `{"result":{"kind":"approve-for-session","domain":"https://a.example"}}`, ""},
	} {
		var s State
		s.Approve(ApprovedURLs(&callback.Pending{Kind: callback.ForEvent(c.method), Params: json.RawMessage(c.asked)},
			callback.Reply{Members: json.RawMessage(c.answer)}))
		if got := strings.Join(s.rulesToTell(t), " "); got != c.want {
			t.Errorf("%s: told is %q, want %q", name, got, c.want)
		}
	}
}
