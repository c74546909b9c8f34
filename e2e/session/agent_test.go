package session

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// TestAgentWithoutDisplayName: a session whose agent has only the required members outlives its runtime. CLI 1.0.81
// alone writes a record of it that it then refuses to read.
func TestAgentWithoutDisplayName(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{})
	s := st.Create(st.Options(func(c *cliv1.SessionConfig) {
		c.CustomAgents = []*cliv1.CustomAgentConfig{{Name: "poet", Prompt: "You are a poet of note."}}
	}))
	st.Say(s, "hello")
	agents := cliv1.NewSessionAgentServiceClient(st.Conn())
	harness.Did(st.Fixture, agents.Select, &cliv1.SessionAgentServiceSelectRequest{SessionId: s.ID(), Name: "poet"})
	st.Say(s, "as a poet")
	st.Kill(s.ID())
	if out := st.Say(s, "and on"); out.Text() != "You said: and on" {
		t.Errorf("the agent said %q", out.Text())
	}
	if now := harness.Did(st.Fixture, agents.GetCurrent,
		&cliv1.SessionAgentServiceGetCurrentRequest{SessionId: s.ID()}).GetAgent(); now.GetName() != "poet" {
		t.Errorf("the agent is %v", now)
	}
}
