package wire

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fields"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// An approval for the session covers the request, as the CLI's own interface would word it, or nothing.
func TestApprovalForTheSession(t *testing.T) {
	t.Parallel()
	const bare = `{"kind":"approve-for-session"}`
	approved := func(text string) string { return `{"kind":"approve-for-session","approval":` + text + `}` }
	domain := func(text string) string { return `{"kind":"approve-for-session","domain":"` + text + `"}` }
	url := func(text string) string { return `{"kind":"url","url":"` + text + `"}` }
	cases := map[string]struct{ prompt, decision, want string }{
		"a command to the letter": {
			`{"kind":"commands","fullCommandText":"git status","commandIdentifiers":["git status"],"canOfferSessionApproval":false}`, bare,
			approved(`{"kind":"commands","commandIdentifiers":["git status"]}`),
		},
		"commands that are offered": {
			`{"kind":"commands","fullCommandText":"git status -s","commandIdentifiers":["git status","ls"],"canOfferSessionApproval":true}`, bare,
			approved(`{"kind":"commands","commandIdentifiers":["git status","ls"]}`),
		},
		"a command of another form": {`{"kind":"commands","fullCommandText":"git push -f","commandIdentifiers":["git push"],"canOfferSessionApproval":false}`, bare, ""},
		"a command that is a rule":  {`{"kind":"commands","fullCommandText":"git:*","commandIdentifiers":["git:*"],"canOfferSessionApproval":false}`, bare, ""},
		"no command":                {`{"kind":"commands","fullCommandText":"x","commandIdentifiers":[],"canOfferSessionApproval":true}`, bare, ""},
		"a custom tool":             {`{"kind":"custom-tool","toolName":"works"}`, bare, approved(`{"kind":"custom-tool","toolName":"works"}`)},
		"a tool of a server":        {`{"kind":"mcp","serverName":"s","toolName":"t"}`, bare, approved(`{"kind":"mcp","serverName":"s","toolName":"t"}`)},
		"all tools of a server":     {`{"kind":"mcp","serverName":"s","toolName":null}`, bare, ""},
		"reading":                   {`{"kind":"read","path":"/a"}`, bare, approved(`{"kind":"read"}`)},
		"writing":                   {`{"kind":"write","canOfferSessionApproval":true}`, bare, approved(`{"kind":"write"}`)},
		"writing, not offered":      {`{"kind":"write","canOfferSessionApproval":false}`, bare, ""},
		"memory":                    {`{"kind":"memory","fact":"f"}`, bare, approved(`{"kind":"memory"}`)},
		"directories":               {`{"kind":"path","paths":["/etc/hosts"]}`, bare, bare},
		"an extension's variables": {
			`{"kind":"extension-env-access","extensionName":"e","environmentVariables":["A"]}`, bare,
			approved(`{"kind":"extension-env-access","extensionName":"e","environmentVariables":["A"]}`),
		},
		"an extension's rights": {
			`{"kind":"extension-permission-access","extensionName":"e"}`, bare, approved(`{"kind":"extension-permission-access","extensionName":"e"}`),
		},
		"managing extensions":      {`{"kind":"extension-management","operation":"reload"}`, bare, approved(`{"kind":"extension-management","operation":"reload"}`)},
		"managing, no operation":   {`{"kind":"extension-management"}`, bare, ""},
		"a workflow":               {`{"kind":"workflow","approvalKey":"k","canPersistApproval":true}`, bare, approved(`{"kind":"workflow","approvalKey":"k"}`)},
		"a workflow, not to keep":  {`{"kind":"workflow","approvalKey":"k","canPersistApproval":false}`, bare, ""},
		"a hook's question":        {`{"kind":"hook","toolName":"bash"}`, bare, ""},
		"what nobody knows":        {`{"kind":"new"}`, bare, ""},
		"a URL":                    {url("https://Example.com/a?b"), bare, domain("https://example.com")},
		"a URL with its own port":  {url("http://a.com:80/"), bare, domain("http://a.com")},
		"a URL with another port":  {url("http://[::1]:8080/x"), bare, domain("http://[::1]:8080")},
		"a URL with a user":        {url("https://a.com@b.com/"), bare, ""},
		"a URL with an odd host":   {url("https://a*.com/"), bare, ""},
		"a URL of another scheme":  {url("file:///etc/passwd"), bare, ""},
		"what says it is kept":     {`{"kind":"read"}`, approved(`{"kind":"write"}`), approved(`{"kind":"write"}`)},
		"a domain is kept":         {url("https://a.com"), domain("https://b.com"), domain("https://b.com")},
		"an empty one is left out": {`{"kind":"read"}`, approved(`{}`), approved(`{"kind":"read"}`)},
		"once is once":             {`{"kind":"hook"}`, `{"kind":"approve-once"}`, `{"kind":"approve-once"}`},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, params := range []string{
				fmt.Sprintf(`{"requestId":"1","permissionRequest":{"kind":"other"},"promptRequest":%s}`, c.prompt),
				fmt.Sprintf(`{"requestId":"1","permissionRequest":%s}`, c.prompt),
			} {
				got, err := PermissionDecision(&callback.Pending{ID: "1", Params: []byte(params)}, []byte(c.decision), "answer.permission")
				if c.want == "" {
					f, _ := fields.AsFault(err)
					if f == nil || f.Reason != fault.AnswerInvalid || f.Field != "answer.permission.approve_for_session.approval" {
						t.Errorf("%s: got %s, %v, want an invalid answer with its field", params, got, err)
					}
					continue
				}
				if err != nil || string(got) != c.want {
					t.Errorf("%s: got %s, %v, want %s", params, got, err, c.want)
				}
			}
		})
	}
}

// A shell's request that has no form for prompts names its commands in its own.
func TestApprovalOfARequestWithoutAPrompt(t *testing.T) {
	t.Parallel()
	params := `{"permissionRequest":{"kind":"shell","fullCommandText":"ls","commands":[{"identifier":"ls","readOnly":true}],"canOfferSessionApproval":false}}`
	got, err := PermissionDecision(&callback.Pending{ID: "1", Params: []byte(params)}, []byte(`{"kind":"approve-for-session"}`), "result")
	if want := `{"kind":"approve-for-session","approval":{"kind":"commands","commandIdentifiers":["ls"]}}`; err != nil || string(got) != want {
		t.Errorf("got %s, %v, want %s", got, err, want)
	}
}

// A participant that is exact says what the CLI is to hear, and no more.
func TestExactApproval(t *testing.T) {
	t.Parallel()
	codec := New(slog.New(slog.DiscardHandler))
	p := &callback.Pending{ID: "1", Kind: callback.ForEvent(callback.PermissionRequested), Params: []byte(`{"permissionRequest":{"kind":"read"}}`)}
	answer := &bridgev1.Answer{Answer: &bridgev1.Answer_Permission{Permission: &cliv1.PermissionDecision{
		Variant: &cliv1.PermissionDecision_ApproveForSession{ApproveForSession: &cliv1.PermissionDecisionApproveForSession{}},
	}}}
	for name, c := range map[string]struct {
		form func(*callback.Pending, *bridgev1.Answer, string) (callback.Reply, error)
		want string
	}{
		"exact": {codec.ExactReply, `{"result":{"kind":"approve-for-session"}}`},
		"tidy":  {codec.Reply, `{"result":{"kind":"approve-for-session","approval":{"kind":"read"}}}`},
	} {
		if got, err := c.form(p, answer, "answer"); err != nil || string(got.Members) != c.want {
			t.Errorf("%s: got %s, %v, want %s", name, got.Members, err, c.want)
		}
	}
}
