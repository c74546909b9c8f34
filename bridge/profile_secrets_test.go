package bridge

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// After a restart a session lacks the secrets of its profile. A resume that fails does not set them: the session must
// not be loaded with the server's token in their place.
func TestFailedResumeSetsNoSecrets(t *testing.T) {
	t.Parallel()
	refuse := fakecli.MethodFault{Method: "session.resume", Times: 1, Fault: fakecli.Fault{
		Kind: fakecli.FaultError, Code: -32603, Message: "refused",
	}}
	r := newKept(t, always(fakecli.Script{Faults: []fakecli.MethodFault{refuse}}), func(c *Config) {
		c.ProfileFields = []string{"github_token"}
	})
	profile := func() *bridgev1.RuntimeProfile { return &bridgev1.RuntimeProfile{GithubToken: "s3cret"} }
	r.create("s1", func(q *bridgev1.CreateSessionRequest) { q.RuntimeProfile = profile() })
	r.ask("s1", "hi")
	r = r.reborn()
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
	r.ask("s1", "on")
}
