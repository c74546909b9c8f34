package session

import (
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

const (
	openAI      = cliv1.ProviderConfigType_PROVIDER_CONFIG_TYPE_OPENAI
	azure       = cliv1.ProviderConfigType_PROVIDER_CONFIG_TYPE_AZURE
	anthropic   = cliv1.ProviderConfigType_PROVIDER_CONFIG_TYPE_ANTHROPIC
	completions = cliv1.ProviderConfigWireApi_PROVIDER_CONFIG_WIRE_API_COMPLETIONS
	responses   = cliv1.ProviderConfigWireApi_PROVIDER_CONFIG_WIRE_API_RESPONSES
)

// providerKind is one of the kinds of model services, and its address.
type providerKind struct {
	name   string
	config func(s *offlinemodel.Scope) *cliv1.ProviderConfig
	path   string
	key    string // the header with the key
}

func providerKinds() []providerKind {
	kind := func(t cliv1.ProviderConfigType, w cliv1.ProviderConfigWireApi, base func(*offlinemodel.Scope) string,
		version string) func(*offlinemodel.Scope) *cliv1.ProviderConfig {
		return func(s *offlinemodel.Scope) *cliv1.ProviderConfig {
			// CLI 1.0.81 drops the path of Azure's URL
			c := &cliv1.ProviderConfig{ProviderType: t, WireApi: w, BaseUrl: base(s), ApiKey: proto.String(s.Name())}
			if version != "" {
				c.Azure = &cliv1.ProviderConfigAzure{ApiVersion: proto.String(version)}
			}
			return c
		}
	}
	const none = cliv1.ProviderConfigWireApi_PROVIDER_CONFIG_WIRE_API_UNSPECIFIED
	openAIURL, azureURL, anthropicURL := (*offlinemodel.Scope).OpenAIBaseURL, (*offlinemodel.Scope).AzureBaseURL, (*offlinemodel.Scope).AnthropicBaseURL
	return []providerKind{
		{"openai completions", kind(openAI, completions, openAIURL, ""), "/v1/chat/completions", "Authorization"},
		{"openai responses", kind(openAI, responses, openAIURL, ""), "/v1/responses", "Authorization"},
		{"azure deployment", kind(azure, none, azureURL, "2024-10-21"),
			"/openai/deployments/" + offlinemodel.DefaultModel + "/chat/completions", "Api-Key"},
		{"azure v1", kind(azure, none, azureURL, ""), "/openai/v1/chat/completions", "Api-Key"},
		{"azure responses", kind(azure, responses, azureURL, "2024-10-21"), "/openai/responses", "Api-Key"},
		{"anthropic", kind(anthropic, none, anthropicURL, ""), "/v1/messages", "X-Api-Key"},
	}
}

// A session with a provider of each kind works when it is created and when it is resumed,
// and the credentials go where they belong.
func TestProviders(t *testing.T) {
	t.Parallel()
	for _, kind := range providerKinds() {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			r := harness.NewFixture(t, harness.Echo)
			s := r.Session(r.Options(func(c *cliv1.SessionConfig) { c.Provider = kind.config(r.Model) }))
			if got := s.Ask("hello"); got != "You said: hello" {
				t.Errorf("the answer is %q", got)
			}
			if err := s.Disconnect(r.Ctx); err != nil {
				t.Fatal(err)
			}
			s = r.Resume(r.Client, s.ID(),
				copilot.SessionOptions{Config: &cliv1.SessionConfig{Provider: kind.config(r.Model)}})
			if got := s.Ask("again"); got != "You said: again" {
				t.Errorf("the answer after the resume is %q", got)
			}
			requests := r.Model.ModelRequests()
			if len(requests) != 2 {
				t.Fatalf("%d model requests", len(requests))
			}
			for _, q := range requests {
				if q.Path != kind.path || !strings.HasSuffix(q.Header.Get(kind.key), r.Model.Name()) ||
					q.Model != offlinemodel.DefaultModel {
					t.Errorf("request %d: %s, model %q, %s %q", q.Number, q.Path, q.Model, kind.key,
						q.Header.Get(kind.key))
				}
			}
			if !strings.Contains(harness.Talk(requests[1]), "hello") {
				t.Errorf("the history is lost: %s", harness.Talk(requests[1]))
			}
		})
	}
}

// withHeaders is a session whose provider has headers.
func withHeaders(r *harness.Fixture, headers map[string]string) *harness.TestSession {
	return r.Session(r.Options(func(c *cliv1.SessionConfig) { c.Provider.Headers = headers }))
}

func updateProvider(r *harness.Fixture, id string, p *cliv1.ProviderConfig, model string, paths ...string) error {
	var mask *fieldmaskpb.FieldMask
	if len(paths) > 0 {
		mask = &fieldmaskpb.FieldMask{Paths: paths}
	}
	_, err := r.Client.Sessions().UpdateProvider(r.Ctx,
		&bridgev1.UpdateProviderRequest{SessionId: id, Provider: p, UpdateMask: mask, ModelId: model})
	return copilot.FromError(err)
}

// A provider can be changed in parts, from the next turn on.
func TestUpdateProvider(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	s := withHeaders(r, map[string]string{"X-Team": "one"})
	s.Ask("first")
	sent := func(want http.Header, path string) {
		t.Helper()
		q := r.LastModelRequest()
		for name := range want {
			if got := q.Header.Get(name); got != want.Get(name) {
				t.Errorf("%s is %q, want %q", name, got, want.Get(name))
			}
		}
		if q.Path != path {
			t.Errorf("path is %s, want %s", q.Path, path)
		}
		if !strings.Contains(harness.Talk(q), "first") {
			t.Error("the history is lost")
		}
	}
	update := func(p *cliv1.ProviderConfig, model string, paths ...string) {
		t.Helper()
		if err := updateProvider(r, s.ID(), p, model, paths...); err != nil {
			t.Fatal(err)
		}
	}
	const chat = "/v1/chat/completions"
	sent(http.Header{"X-Team": {"one"}, "Authorization": {"Bearer offline"}}, chat)

	// Set members change, the rest stays.
	update(&cliv1.ProviderConfig{ApiKey: proto.String("another")}, "")
	s.Ask("second")
	sent(http.Header{"X-Team": {"one"}, "Authorization": {"Bearer another"}}, chat)

	// Members of the mask change, and nothing else.
	update(&cliv1.ProviderConfig{WireApi: responses, ApiKey: proto.String("not taken")}, "", "wire_api")
	s.Ask("third")
	sent(http.Header{"X-Team": {"one"}, "Authorization": {"Bearer another"}}, "/v1/responses")

	// Members of the mask that are unset go.
	update(&cliv1.ProviderConfig{}, "other-model", "headers", "wire_api")
	s.Ask("fourth")
	sent(http.Header{"Authorization": {"Bearer another"}}, chat)
	if q := r.LastModelRequest(); q.Header.Values("X-Team") != nil || q.Model != "other-model" {
		t.Errorf("headers %q, model %q", q.Header, q.Model)
	}

	// Impossible changes are refused and change nothing.
	harness.WantError(t, updateProvider(r, s.ID(), &cliv1.ProviderConfig{}, "", "base_url"), codes.InvalidArgument,
		bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
	harness.WantError(t, updateProvider(r, s.ID(), &cliv1.ProviderConfig{}, "", "nonsense"), codes.InvalidArgument,
		bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
	s.Ask("fifth")
	sent(http.Header{"Authorization": {"Bearer another"}}, chat)
	if got := s.RecordedTypes(); strings.Contains(strings.Join(got, " "), "session.resume") {
		t.Errorf("the changes left traces: %q", got)
	}
}

func TestUpdateProviderWhileBusy(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, `
rules: [{when: {user: "wait"}, wait_for: go, reply: [{text: "gone"}]}]
default: {reply: [{text: "ok"}]}`)
	s := r.Session(r.Options())
	s.Submit("wait")
	err := updateProvider(r, s.ID(), &cliv1.ProviderConfig{ApiKey: proto.String("early")}, "")
	harness.WantError(t, err, codes.FailedPrecondition, bridgev1.ErrorReason_ERROR_REASON_SESSION_BUSY)
	r.Model.Release("go")
	s.WaitFor("session.idle")
	if err := updateProvider(r, s.ID(), &cliv1.ProviderConfig{ApiKey: proto.String("later")}, ""); err != nil {
		t.Fatal(err)
	}
	s.Ask("next")
	if got := r.LastModelRequest().Header.Get("Authorization"); got != "Bearer later" {
		t.Errorf("authorization is %q", got)
	}
}

// Credentials can be replaced, and the rest of the provider is as it was.
func TestProvideCredentials(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	s := withHeaders(r, map[string]string{"X-Team": "one"})
	s.Ask("first")
	provide := func(q *bridgev1.ProvideCredentialsRequest) error {
		q.SessionId = s.ID()
		_, err := r.Client.Sessions().ProvideCredentials(r.Ctx, q)
		return copilot.FromError(err)
	}
	if err := provide(&bridgev1.ProvideCredentialsRequest{Provider: &cliv1.ProviderConfig{BearerToken: proto.String("bearer")}}); err != nil {
		t.Fatal(err)
	}
	s.Ask("second")
	q := r.LastModelRequest()
	if q.Header.Get("Authorization") != "Bearer bearer" || q.Header.Get("X-Team") != "one" ||
		!strings.Contains(harness.Talk(q), "first") {
		t.Errorf("headers are %q", q.Header)
	}
	harness.WantError(t, provide(&bridgev1.ProvideCredentialsRequest{}), codes.InvalidArgument,
		bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD)
}
