package harness

import (
	"testing"

	"google.golang.org/protobuf/proto"

	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

// GitHub is a fixture whose CLI takes the offline model for GitHub's own API: the account's token identifies requests.
type GitHub struct {
	*Fixture
	Api *offlinemodel.Server
}

// NewGitHub starts a fixture whose offline model follows the script.
func NewGitHub(t *testing.T, text string) *GitHub {
	t.Helper()
	SkipWithoutCLI(t)
	script, err := offlinemodel.Parse("github.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	api, err := offlinemodel.Start(t.Context(), offlinemodel.Options{Script: script})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := Bounded(api.Close); err != nil {
			t.Error(err)
		}
	})
	env := map[string]string{"COPILOT_API_URL": api.URL(), "COPILOT_DEBUG_GITHUB_API_URL": api.URL()}
	return &GitHub{NewOwnFixture(t, Echo, HostConfig{Env: env}), api}
}

// As is the configuration of a session of an account.
func (g *GitHub) As(token, model string) *cliv1.SessionConfig {
	return &cliv1.SessionConfig{Model: proto.String(model), GithubToken: proto.String(token),
		WorkingDirectory: proto.String(g.Dir)}
}

// RateLimited has an account reach its limit in every turn of "ask".
const RateLimited = `
models: [{id: claude-haiku-4.5}, {id: claude-sonnet-4.5}] # auto is the first
github: {users: [{token: token-of-ann, login: ann, plan: business}, {token: fresh, login: ann, plan: business}]}
rules:
  - when: {user: "ask"}
    error: {status: 429, code: user_weekly_rate_limited, message: "weekly limit", retry_after: 1s}
  - when: {user: "paid", token: fresh}
    reply: [{text: "paid with a fresh token"}]
default: {reply: [{text: "by {{model}}: {{user}}"}], usage: {input_tokens: 10, output_tokens: 10, nano_aiu: 40000000000}}`
