package sessions_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// masking is a Sealer for tests: it only makes a text unreadable, and binds it to its session.
type masking struct {
	mask byte
	ttl  time.Duration
}

func (m masking) Seal(text []byte, session string) []byte {
	out := append([]byte(session+" "), text...)
	for i := range out {
		out[i] ^= m.mask
	}
	return out
}

func (m masking) Open(sealed []byte, session string) ([]byte, error) {
	text, ok := bytes.CutPrefix(m.Seal(sealed, "")[1:], []byte(session+" "))
	if !ok {
		return nil, errors.New("another key or session")
	}
	return text, nil
}

func (m masking) TTL() time.Duration { return m.ttl }

// With a Sealer a session continues after a restart with the credentials that its callers gave: those of its
// configuration, of its settings and of its profile. Without its key, or after its time, it needs them again.
func TestSealedCredentials(t *testing.T) {
	t.Parallel()
	sealer := masking{mask: 0x55}
	k := bridgetest.New(t, fakecli.Script{}, bridgetest.Stored, func(c *bridgetest.Options) {
		c.Sealer, c.ProfileFields = sealer, []string{"github_token"}
	})
	k.Create("s1", func(q *bridgev1.CreateSessionRequest) {
		q.RuntimeProfile = &bridgev1.RuntimeProfile{GithubToken: "profile-s3cret"}
		q.Config = &cliv1.SessionConfig{Provider: &cliv1.ProviderConfig{
			BaseUrl: "http://127.0.0.1:1", ApiKey: proto.String("provider-s3cret"),
		}}
	})
	k.Ask("s1", "hello")
	k = k.Restart()
	k.Ask("s1", "again") // nobody has given them again
	if !slices.ContainsFunc(k.FakeCLI().Log(), func(m fakecli.Entry) bool {
		return m.Type == "session.resume" && strings.Contains(string(m.Body), "provider-s3cret")
	}) {
		t.Error("the session was loaded without the provider's key")
	}
	if e := k.Store().Get("s1"); e == nil {
		t.Fatal("no session")
	} else if p, _ := e.Profile(); p.Token != "profile-s3cret" {
		t.Errorf("the profile has the token %q", p.Token)
	}
	if lacks := k.Credentials("s1"); len(lacks) > 0 {
		t.Errorf("%v count as not stored", lacks)
	}
	needed := func(when string, missing string) {
		t.Helper()
		prompt := &bridgev1.SendRequest{SessionId: "s1", Prompt: &bridgev1.Prompt{Text: "on"}}
		_, err := k.Turns.Send(t.Context(), prompt)
		if fault.ReasonOf(err) != fault.CredentialsNeeded || !strings.Contains(err.Error(), missing) {
			t.Errorf("%s a prompt returns %v", when, err)
		}
	}
	sealer.ttl = time.Nanosecond
	k = k.Restart()
	needed("after their time", "provider.apiKey")
	needed("after their time", "runtime_profile.github_token")
}

// Credentials that no key opens are needed again.
func TestSealedWithAnotherKey(t *testing.T) {
	t.Parallel()
	sealer := masking{mask: 0x55}
	k := bridgetest.New(t, fakecli.Script{}, bridgetest.Stored, func(c *bridgetest.Options) { c.Sealer = sealer })
	k.Create("s1", func(q *bridgev1.CreateSessionRequest) {
		q.Config = &cliv1.SessionConfig{Provider: &cliv1.ProviderConfig{
			BaseUrl: "http://127.0.0.1:1", ApiKey: proto.String("s3cret"),
		}}
	})
	k.Ask("s1", "hello")
	sealer.mask = 0x33
	k = k.Restart()
	_, err := k.Turns.Send(t.Context(), &bridgev1.SendRequest{SessionId: "s1", Prompt: &bridgev1.Prompt{Text: "on"}})
	if fault.ReasonOf(err) != fault.CredentialsNeeded {
		t.Errorf("a prompt returns %v", err)
	}
}

// After a restart a session lacks the secrets of its profile. A resume that fails does not set them: the session must
// not be loaded with the server's token in their place.
func TestFailedResumeSetsNoSecrets(t *testing.T) {
	t.Parallel()
	refuse := fakecli.MethodFault{Method: "session.resume", Times: 1, Fault: fakecli.Fault{
		Kind: fakecli.FaultError, Code: -32603, Message: "refused",
	}}
	r := bridgetest.New(t, fakecli.Script{Faults: []fakecli.MethodFault{refuse}}, bridgetest.Stored, func(c *bridgetest.Options) {
		c.ProfileFields = []string{"github_token"}
	})
	profile := func() *bridgev1.RuntimeProfile { return &bridgev1.RuntimeProfile{GithubToken: "s3cret"} }
	r.Create("s1", func(q *bridgev1.CreateSessionRequest) { q.RuntimeProfile = profile() })
	r.Ask("s1", "hi")
	r = r.Restart()
	needed := func(when string) {
		t.Helper()
		_, err := r.Turns.Send(t.Context(), &bridgev1.SendRequest{SessionId: "s1", Prompt: &bridgev1.Prompt{Text: "on"}})
		if fault.ReasonOf(err) != fault.CredentialsNeeded {
			t.Errorf("%s a prompt returns %v", when, err)
		}
	}
	resume := func(p *bridgev1.RuntimeProfile) error {
		_, err := r.Sessions.ResumeSession(t.Context(), &bridgev1.ResumeSessionRequest{SessionId: "s1", RuntimeProfile: p})
		return err
	}
	needed("after the restart")
	denied := profile()
	denied.LogLevel = "debug"
	if err := resume(denied); fault.ReasonOf(err) != fault.Forbidden {
		t.Fatalf("a resume with a field that is not allowed returns %v", err)
	}
	needed("after a refused profile")
	if err := resume(profile()); err == nil {
		t.Fatal("the CLI refuses the resume, and it succeeds")
	}
	needed("after a failed resume")
	if err := resume(profile()); err != nil {
		t.Fatal(err)
	}
	r.Ask("s1", "on")
}
