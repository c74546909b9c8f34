package e2e

import (
	"fmt"
	"testing"

	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// rateLimited has an account reach its limit in every turn of "ask".
const rateLimited = `
models: [{id: claude-sonnet-4.5}]
github: {users: [{token: token-of-ann, login: ann, plan: business}, {token: fresh, login: fred, plan: business}]}
rules:
  - when: {user: "ask"}
    error: {status: 429, code: user_weekly_rate_limited, message: "weekly limit", retry_after: 1h}
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
		accepted: "by auto: go on",
		decline:  autoModeSwitch(cliv1.CallbackAutoModeSwitchServiceRequestResponseResponse_CALLBACK_AUTO_MODE_SWITCH_SERVICE_REQUEST_RESPONSE_RESPONSE_NO),
		declined: "by claude-sonnet-4.5: go on",
		wrong:    &copilot.AutoModeSwitchAnswer{},
		silent:   "by claude-sonnet-4.5: go on",
	},
	"GitHub token": {
		kind: bridgev1.CallbackKind_CALLBACK_KIND_GITHUB_TOKEN,
		config: func(st *stage, c *cliv1.SessionConfig) {
			asAnn(st, c)
			c.GithubToken, c.JsonExtra = nil, `{"gitHubTokenProviderRegistrationId":"x"}`
		},
		ask: func(st *stage, s *copilot.Session) func() string {
			wait := st.goTurn(s, "hello")
			return func() string { out := wait(); return out.GetText() + out.GetError().GetMessage() }
		},
		request: `host:"`,
		accept: &cliv1.CallbackGitHubTokenServiceGetTokenResponse{Variant: &cliv1.CallbackGitHubTokenServiceGetTokenResponse_Token{
			Token: &cliv1.CallbackGitHubTokenServiceGetTokenResponseToken{AccessToken: "fresh", ExpiresIn: 7200},
		}},
		accepted: "by claude-sonnet-4.5: hello",
		decline: &cliv1.CallbackGitHubTokenServiceGetTokenResponse{Variant: &cliv1.CallbackGitHubTokenServiceGetTokenResponse_Cancelled{
			Cancelled: &cliv1.CallbackGitHubTokenServiceGetTokenResponseCancelled{},
		}},
		declined: "x",
		silent:   "x",
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
			return func() string { out := wait(); return out.GetText() + out.GetError().GetMessage() }
		},
		request: `max_ai_credits:30`,
		accept: &cliv1.UISessionLimitsExhaustedResponse{
			Action:              cliv1.UISessionLimitsExhaustedResponseAction_UI_SESSION_LIMITS_EXHAUSTED_RESPONSE_ACTION_ADD,
			AdditionalAiCredits: proto.Float64(100),
		},
		accepted: "by claude-sonnet-4.5: more",
		decline: &cliv1.UISessionLimitsExhaustedResponse{
			Action: cliv1.UISessionLimitsExhaustedResponseAction_UI_SESSION_LIMITS_EXHAUSTED_RESPONSE_ACTION_CANCEL,
		},
		declined: "x",
		wrong:    &cliv1.UISessionLimitsExhaustedResponse{},
		silent:   "x",
	},
}

func TestGitHubQuestions(t *testing.T) {
	t.Parallel()
	g := newGitHub(t, rateLimited)
	for name, q := range gitHubQuestions {
		t.Run(name, func(t *testing.T) { q.test(t, g.host) })
	}
}
