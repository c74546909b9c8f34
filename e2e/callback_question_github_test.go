package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// rateLimited has an account reach its limit in every turn of "ask".
const rateLimited = `
models: [{id: claude-haiku-4.5}, {id: claude-sonnet-4.5}] # auto is the first
github: {users: [{token: token-of-ann, login: ann, plan: business}, {token: fresh, login: ann, plan: business}]}
rules:
  - when: {user: "ask"}
    error: {status: 429, code: user_weekly_rate_limited, message: "weekly limit", retry_after: 1s}
  - when: {user: "paid", token: fresh}
    reply: [{text: "paid with a fresh token"}]
default: {reply: [{text: "by {{model}}: {{user}}"}], usage: {input_tokens: 10, output_tokens: 10, nano_aiu: 40000000000}}`

// asAnn has a session of GitHub's own models, paid by Ann.
func asAnn(_ *stage, c *cliv1.SessionConfig) {
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
		ask: func(st *stage, s *copilot.Session) func() string {
			st.goTurn(s, "ask")
			return func() string {
				done := st.first(s, "auto_mode_switch.completed").GetEvent().GetAutoModeSwitchCompleted()
				return fmt.Sprintf("%v, %s", done.GetResponse(), st.say(s, "go on").GetText())
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
		config: func(st *stage, c *cliv1.SessionConfig) {
			asAnn(st, c)
			c.GithubToken = nil
		},
		open: openWithToken, patience: 3 * time.Second, // the first token is to come in time
		ask: func(st *stage, s *copilot.Session) func() string {
			<-time.After(freshFor + 100*time.Millisecond)
			wait := st.goTurn(s, "paid")
			return func() string { out := wait(); return out.GetText() + out.GetError().GetMessage() }
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
		config: func(st *stage, c *cliv1.SessionConfig) {
			asAnn(st, c)
			c.SessionLimits = &cliv1.SessionLimitsConfig{MaxAiCredits: proto.Float64(30)}
		},
		ask: func(st *stage, s *copilot.Session) func() string {
			st.say(s, "hello")
			wait := st.goTurn(s, "more")
			return func() string {
				out := wait()
				return fmt.Sprintf("%v, %d model requests: %s%v", out.GetStatus(), len(st.all(s, "model.model_call_started")), out.GetText(), out.GetError())
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

// freshFor is how long the first token of a session lasts, until the CLI wants another: the
// session must be there by then, on a busy machine too, and whoever answers must take part.
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

// openWithToken creates a session whose GitHub token is asked for at once, before anybody can
// take part: who knows the session's id answers it.
func openWithToken(a *asker, opts copilot.SessionOptions) *copilot.Session {
	a.t.Helper()
	opts.SessionHandlers = a.handlers()
	opts.ID = fmt.Sprintf("%08x-1111-4111-8111-%012x", rand.Uint32(), rand.Uint32())
	answered := make(chan error, 1)
	go func() {
		for tick := time.NewTicker(10 * time.Millisecond); ; { // there is no session to subscribe to yet
			select {
			case <-tick.C:
			case <-a.ctx.Done():
				answered <- a.ctx.Err()
				return
			}
			list, err := a.client.Callbacks().ListPending(a.ctx, &bridgev1.ListPendingRequest{SessionId: opts.ID})
			if err != nil || len(list.GetCallbacks()) == 0 {
				continue
			}
			tick.Stop()
			answered <- a.client.Session(opts.ID).Resolve(a.ctx, list.GetCallbacks()[0].GetCallbackId(), a.with(firstToken))
			return
		}
	}()
	s := a.create(opts)
	if err := <-answered; err != nil {
		a.t.Fatal(err)
	}
	return s
}

func TestGitHubQuestions(t *testing.T) {
	t.Parallel()
	g := newGitHub(t, rateLimited)
	for name, q := range gitHubQuestions {
		t.Run(name, func(t *testing.T) { q.test(t, g.host) })
	}
}

// Whoever creates a session can give it its GitHub tokens: the first is asked for before it
// is there.
func TestGitHubTokenOfCreator(t *testing.T) {
	t.Parallel()
	g := newGitHub(t, rateLimited)
	tokens := make(chan *copilot.GitHubToken, 2)
	tokens <- &copilot.GitHubToken{Token: "token-of-ann", ExpiresIn: time.Hour + freshFor}
	tokens <- &copilot.GitHubToken{Token: "fresh", ExpiresIn: 2 * time.Hour}
	why := make(chan cliv1.GitHubTokenAcquireReason, 2)
	config := g.as("", "claude-sonnet-4.5")
	config.GithubToken = nil
	s := g.session(copilot.SessionOptions{
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
	if got := s.ask("paid"); got != "paid with a fresh token" {
		t.Errorf("the answer is %q", got)
	}
	if got := <-why; got != cliv1.GitHubTokenAcquireReason_GIT_HUB_TOKEN_ACQUIRE_REASON_REFRESH {
		t.Errorf("the second token is for %v", got)
	}
	_, err := g.client.CreateSession(g.ctx, copilot.SessionOptions{
		Config:        config,
		OnGitHubToken: func(context.Context, *copilot.GitHubTokenRequest) (*copilot.GitHubToken, error) { return nil, nil },
	})
	wantReason(t, err, bridgev1.ErrorReason_ERROR_REASON_SESSION_REFUSED)
}
