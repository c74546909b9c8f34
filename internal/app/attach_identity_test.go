package app

import (
	"testing"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// A start that comes again under its request id gets its place back, from the same caller:
// another caller of the tenant has no right to the participant's token.
func TestStartOfAnotherCallerComesAgain(t *testing.T) {
	t.Parallel()
	ts := startTenants(t, func(c *Config) {
		c.Policy = writePolicy(t, `
version: 1
identity: {tokens: tokens.txt}
tenants:
  acme: {members: [{token: alice, role: owner}, {token: bob, role: owner}]}
`, "alice", "bob")
	})
	attach := func(name string) (*bridgev1.AttachStarted, func()) {
		t.Helper()
		stream, err := bridgev1.NewCallbackServiceClient(ts.as(name)).Attach(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = stream.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: &bridgev1.AttachStart{
			Session: &bridgev1.AttachStart_Create{Create: &bridgev1.CreateSessionRequest{RequestId: "same"}},
		}}})
		if err != nil {
			t.Fatal(err)
		}
		f, err := attachedFrame(stream)
		if err != nil {
			t.Fatal(err)
		}
		return f.GetStarted(), func() { _, _ = stream.Recv() }
	}
	alice, replaced := attach("alice")
	bob, _ := attach("bob")
	if bob.GetParticipantToken() == alice.GetParticipantToken() ||
		bob.GetParticipantId() == alice.GetParticipantId() || bob.GetResumed() {
		t.Errorf("the other caller is %v, the first one %v", bob, alice)
	}
	if bob.GetSession().GetSessionId() != alice.GetSession().GetSessionId() {
		t.Errorf("the session was created twice: %q and %q", alice.GetSession().GetSessionId(),
			bob.GetSession().GetSessionId())
	}
	again, _ := attach("alice")
	if again.GetParticipantToken() != alice.GetParticipantToken() || !again.GetResumed() {
		t.Errorf("the same caller is %v, was %v", again, alice)
	}
	replaced() // the first stream ends: its place is taken
}
