package callback

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// asAnn has a session of GitHub's own models, paid by Ann.
func asAnn(_ *harness.Scripted, c *cliv1.SessionConfig) {
	c.Provider, c.Model, c.GithubToken = nil, proto.String("claude-sonnet-4.5"), proto.String("token-of-ann")
}

func autoModeSwitch(r cliv1.CallbackAutoModeSwitchServiceRequestResponseResponse) *copilot.AutoModeSwitchAnswer {
	return &copilot.AutoModeSwitchAnswer{Response: r}
}

// gitHubQuestions are what the CLI asks in sessions that use GitHub's own models.
var gitHubQuestions = map[string]question{
	"auto mode switch": {
		kind:   bridgev1.CallbackKind_CALLBACK_KIND_AUTO_MODE_SWITCH,
		config: asAnn,
		ask: func(st *harness.Scripted, s *copilot.Session) func() string {
			st.GoTurn(s, "ask")
			return func() string {
				done := st.First(s, "auto_mode_switch.completed").GetEvent().GetAutoModeSwitchCompleted()
				return fmt.Sprintf("%v, %s", done.GetResponse(), st.Say(s, "go on").Text())
			}
		},
		request:  `error_code:"user_weekly_rate_limited"`,
		accept:   autoModeSwitch(cliv1.CallbackAutoModeSwitchServiceRequestResponseResponse_CALLBACK_AUTO_MODE_SWITCH_SERVICE_REQUEST_RESPONSE_RESPONSE_YES),
		accepted: "by claude-haiku-4.5: go on",
		decline:  autoModeSwitch(cliv1.CallbackAutoModeSwitchServiceRequestResponseResponse_CALLBACK_AUTO_MODE_SWITCH_SERVICE_REQUEST_RESPONSE_RESPONSE_NO),
		declined: "by claude-sonnet-4.5: go on",
		wrong:    &copilot.AutoModeSwitchAnswer{},
		silent:   "by claude-sonnet-4.5: go on",
	},
	"GitHub token": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_GITHUB_TOKEN,
		config: func(st *harness.Scripted, c *cliv1.SessionConfig) {
			asAnn(st, c)
			c.GithubToken = nil
		},
		open: openWithToken, patience: 3 * time.Second, // the first token is to come in time
		ask: func(st *harness.Scripted, s *copilot.Session) func() string {
			<-time.After(freshFor + 100*time.Millisecond)
			wait := st.GoTurn(s, "paid")
			return func() string { out := wait(); return out.Text() + out.Error().GetMessage() }
		},
		request:  `reason:GIT_HUB_TOKEN_ACQUIRE_REASON_REFRESH`,
		accept:   gitHubToken("fresh", 7200),
		accepted: "paid with a fresh token",
		decline: &cliv1.CallbackGitHubTokenServiceGetTokenResponse{Variant: &cliv1.CallbackGitHubTokenServiceGetTokenResponse_Cancelled{
			Cancelled: &cliv1.CallbackGitHubTokenServiceGetTokenResponseCancelled{},
		}},
		declined: "callback was cancelled", insists: true,
		silent: "no participant answered in time", stays: true,
	},
	"session limits": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_SESSION_LIMITS,
		config: func(st *harness.Scripted, c *cliv1.SessionConfig) {
			asAnn(st, c)
			c.SessionLimits = &cliv1.SessionLimitsConfig{MaxAiCredits: proto.Float64(30)}
		},
		ask: func(st *harness.Scripted, s *copilot.Session) func() string {
			st.Say(s, "hello")
			wait := st.GoTurn(s, "more")
			return func() string {
				out := wait()
				return fmt.Sprintf("%v, %d model requests: %s%v", out.Status(),
					len(st.All(s, "model.model_call_started")), out.Text(), out.Error())
			}
		},
		request: `max_ai_credits:30`,
		accept: &cliv1.UISessionLimitsExhaustedResponse{
			Action:              cliv1.UISessionLimitsExhaustedResponseAction_UI_SESSION_LIMITS_EXHAUSTED_RESPONSE_ACTION_ADD,
			AdditionalAiCredits: proto.Float64(100),
		},
		accepted: "2 model requests: by claude-sonnet-4.5: more",
		decline: &cliv1.UISessionLimitsExhaustedResponse{
			Action: cliv1.UISessionLimitsExhaustedResponseAction_UI_SESSION_LIMITS_EXHAUSTED_RESPONSE_ACTION_CANCEL,
		},
		declined: "1 model requests",
		wrong:    &cliv1.UISessionLimitsExhaustedResponse{},
		silent:   "1 model requests",
	},
}

// freshFor is how long the first token of a session lasts, until the CLI wants another: the session must exist by then,
// on a busy machine too, and the answering client must take part.
const freshFor = 10 * time.Second

// firstToken is the token that is wanted to create a session.
var firstToken = gitHubToken("token-of-ann", int64((time.Hour+freshFor)/time.Second))

// gitHubToken is the answer that gives a token for so many seconds. The CLI wants another
// an hour before they are over.
func gitHubToken(token string, seconds int64) *cliv1.CallbackGitHubTokenServiceGetTokenResponse {
	return &cliv1.CallbackGitHubTokenServiceGetTokenResponse{Variant: &cliv1.CallbackGitHubTokenServiceGetTokenResponse_Token{
		Token: &cliv1.CallbackGitHubTokenServiceGetTokenResponseToken{AccessToken: token, ExpiresIn: seconds},
	}}
}

// openWithToken creates a session that needs a GitHub token at once, before a client can take part: a client that knows
// the session's id answers it.
func openWithToken(a *asker, opts copilot.SessionOptions) *copilot.Session {
	a.T.Helper()
	opts.SessionHandlers = a.handlers()
	opts.ID = fmt.Sprintf("%08x-1111-4111-8111-%012x", rand.Uint32(), rand.Uint32())
	answered := make(chan error, 1)
	go func() {
		for tick := time.NewTicker(10 * time.Millisecond); ; { // there is no session to subscribe to yet
			select {
			case <-tick.C:
			case <-a.Ctx.Done():
				answered <- a.Ctx.Err()
				return
			}
			list, err := a.Client.Callbacks().ListPending(a.Ctx, &bridgev1.ListPendingRequest{SessionId: opts.ID})
			if err != nil || len(list.GetCallbacks()) == 0 {
				continue
			}
			tick.Stop()
			answered <- a.Client.Session(opts.ID).Resolve(a.Ctx, list.GetCallbacks()[0].GetCallbackId(),
				a.with(firstToken))
			return
		}
	}()
	s := a.Create(opts)
	if err := <-answered; err != nil {
		a.T.Fatal(err)
	}
	return s
}

func TestGitHubQuestions(t *testing.T) {
	t.Parallel()
	g := harness.NewGitHub(t, harness.RateLimited)
	for name, q := range gitHubQuestions {
		t.Run(name, func(t *testing.T) { q.test(t, g.Host) })
	}
}

// The creator of a session can provide its GitHub tokens: the CLI asks for the first before the session exists.
func TestGitHubTokenOfCreator(t *testing.T) {
	t.Parallel()
	g := harness.NewGitHub(t, harness.RateLimited)
	tokens := make(chan *copilot.GitHubToken, 2)
	tokens <- &copilot.GitHubToken{Token: "token-of-ann", ExpiresIn: time.Hour + freshFor}
	tokens <- &copilot.GitHubToken{Token: "fresh", ExpiresIn: 2 * time.Hour}
	why := make(chan cliv1.GitHubTokenAcquireReason, 2)
	config := g.As("", "claude-sonnet-4.5")
	config.GithubToken = nil
	s := g.Session(copilot.SessionOptions{
		Config: config,
		OnGitHubToken: func(_ context.Context, r *copilot.GitHubTokenRequest) (*copilot.GitHubToken, error) {
			why <- r.GetReason()
			return <-tokens, nil
		},
	})
	if got := <-why; got != cliv1.GitHubTokenAcquireReason_GIT_HUB_TOKEN_ACQUIRE_REASON_INITIAL {
		t.Errorf("the first token is for %v", got)
	}
	<-time.After(freshFor + 100*time.Millisecond)
	if got := s.Ask("paid"); got != "paid with a fresh token" {
		t.Errorf("the answer is %q", got)
	}
	if got := <-why; got != cliv1.GitHubTokenAcquireReason_GIT_HUB_TOKEN_ACQUIRE_REASON_REFRESH {
		t.Errorf("the second token is for %v", got)
	}
	_, err := g.Client.CreateSession(g.Ctx, copilot.SessionOptions{
		Config: config,
		OnGitHubToken: func(context.Context, *copilot.GitHubTokenRequest) (*copilot.GitHubToken,
			error) {
			return nil, nil
		},
	})
	harness.WantReason(t, err, bridgev1.ErrorReason_ERROR_REASON_SESSION_REFUSED)
}
