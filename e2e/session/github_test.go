package session

import (
	"context"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// gitHubScript is GitHub as one account sees it.
const gitHubScript = `
models:
  - id: gpt-5.4
    name: By responses
    endpoints: [/responses]
    reasoning_efforts: [low, high]
  - {id: claude-sonnet-4.5, name: By completions, vendor: anthropic}
github: {users: [{token: token-of-ann, login: ann, plan: business}]}
rules:
  - when: {user: "limited"}
    times: 6
    error: {status: 429, code: user_weekly_rate_limited, message: "weekly limit", retry_after: 1s}
default: {reply: [{text: "by {{model}}: {{user}}"}]}`

func TestGitHub(t *testing.T) {
	t.Parallel()
	g := harness.NewGitHub(t, gitHubScript)
	t.Run("models", func(t *testing.T) {
		list, err := g.Client.Runtimes().ListModels(g.Ctx, &bridgev1.ListModelsRequest{GithubToken: "token-of-ann"})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(list.GetModels(), func(m *cliv1.Model) bool { return m.GetId() == "gpt-5.4" })
		if i < 0 || list.GetModels()[i].GetName() != "By responses" ||
			!slices.Contains(list.GetModels()[i].GetSupportedReasoningEfforts(), "high") {
			t.Errorf("models: %v", list)
		}
		_, err = g.Client.Runtimes().ListModels(g.Ctx, &bridgev1.ListModelsRequest{})
		harness.WantError(t, err, codes.FailedPrecondition, bridgev1.ErrorReason_ERROR_REASON_NOT_SIGNED_IN)
	})
	t.Run("auth", func(t *testing.T) {
		auth, err := g.Client.Runtimes().GetAuthStatus(g.Ctx, &bridgev1.GetAuthStatusRequest{})
		if err != nil || auth.GetAuthenticated() {
			t.Errorf("auth: %v, %v", auth, err)
		}
	})
	t.Run("session", func(t *testing.T) {
		s := g.Session(copilot.SessionOptions{Config: g.As("token-of-ann", "claude-sonnet-4.5")})
		if got := s.Ask("hello"); got != "by claude-sonnet-4.5: hello" {
			t.Errorf("the answer is %q", got)
		}
		if _, err := s.SetModel(g.Ctx, "gpt-5.4", "high"); err != nil {
			t.Fatal(err)
		}
		if got := s.Ask("again"); got != "by gpt-5.4: again" {
			t.Errorf("the answer is %q", got)
		}
		for _, q := range g.Api.ModelRequests() {
			if q.Token() != "token-of-ann" {
				t.Errorf("request %d came with %q", q.Number, q.Token())
			}
		}
		// A cold resume has no token of the CLI's own to fall back on: the bridge knows it.
		if err := s.Disconnect(g.Ctx); err != nil {
			t.Fatal(err)
		}
		s = g.Resume(g.Client, s.ID(), copilot.SessionOptions{})
		if got := s.Ask("resumed"); got != "by gpt-5.4: resumed" {
			t.Errorf("the answer is %q", got)
		}
	})
	t.Run("nobody", func(t *testing.T) {
		s := g.Session(copilot.SessionOptions{Config: &cliv1.SessionConfig{WorkingDirectory: proto.String(g.Dir)}})
		out, err := s.SendAndWait(g.Ctx, "hello")
		if err != nil {
			harness.WantError(t, err, codes.FailedPrecondition, bridgev1.ErrorReason_ERROR_REASON_NOT_SIGNED_IN)
		} else if out.Status() != copilot.TurnFailed {
			t.Errorf("the turn ended %v", out)
		}
		if _, err := g.Client.Sessions().ProvideCredentials(g.Ctx, &bridgev1.ProvideCredentialsRequest{
			SessionId: s.ID(), GithubToken: "token-of-ann",
		}); err != nil {
			t.Fatal(err)
		}
		if got := s.Ask("signed in"); got == "" {
			t.Error("no answer with a token")
		}
	})
}

// When the account's limit is reached, the CLI asks whether to change to auto mode.
func TestAutoModeSwitch(t *testing.T) {
	t.Parallel()
	g := harness.NewGitHub(t, gitHubScript)
	asked := make(chan *copilot.AutoModeSwitchRequest, 10)
	s := g.Session(copilot.SessionOptions{
		Config: g.As("token-of-ann", "claude-sonnet-4.5"),
		OnAutoModeSwitch: func(_ context.Context, q *copilot.AutoModeSwitchRequest) (*copilot.AutoModeSwitchAnswer,
			error) {
			asked <- q
			return &copilot.AutoModeSwitchAnswer{
				Response: cliv1.CallbackAutoModeSwitchServiceRequestResponseResponse_CALLBACK_AUTO_MODE_SWITCH_SERVICE_REQUEST_RESPONSE_RESPONSE_YES,
			}, nil
		},
	})
	out := s.Turn("limited")
	if got := out.Error().GetStatusCode(); got != 429 {
		t.Errorf("the turn ended %v", out)
	}
	select { // after the error
	case q := <-asked:
		if q.GetRetryAfterSeconds() != 1 || q.GetErrorCode() != "user_weekly_rate_limited" {
			t.Errorf("asked with %v", q)
		}
	case <-g.Ctx.Done():
		t.Fatalf("it did not ask; the turn ended %v", out)
	}
	s.WaitUntil("the change to auto", func(ev *bridgev1.Event) bool {
		return ev.GetEvent().GetSessionModelChange().GetNewModel() == "auto"
	})
	if got := s.Ask("second"); got != "by gpt-5.4: second" {
		t.Errorf("the answer is %q", got)
	}
}
