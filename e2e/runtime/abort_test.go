package runtime

import (
	"testing"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// TestAbortWhileAsking aborts a turn that waits for an answer: nothing is pending when the next turn has ended, and a
// prompt right behind the abort completes.
func TestAbortWhileAsking(t *testing.T) {
	t.Parallel()
	for name, prompt := range map[string]string{"tool": "work", "question": "question", "permission": "touch"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := harness.NewScripted(t, harness.OnUser("work", harness.Call("works", nil)),
				harness.OnUser("touch", harness.Call("bash", harness.Shell("touch it"))),
				harness.OnUser("question", harness.Call("ask_user", map[string]any{"question": "Which colour?"})))
			config := st.Config()
			skip := true
			config.Tools = []*cliv1.ToolDefinition{{Name: "works", Description: "Works", SkipPermission: &skip}}
			created, err := st.Client.Sessions().CreateSession(st.Ctx, &bridgev1.CreateSessionRequest{Config: config,
				Handlers: &bridgev1.Handlers{Permission: true,
					Kinds: []bridgev1.CallbackKind{bridgev1.CallbackKind_CALLBACK_KIND_USER_INPUT}}})
			if err != nil {
				t.Fatal(err)
			}
			s := st.Client.Session(created.GetSession().GetSessionId())
			st.Own(s.ID())
			st.Say(s, "first")
			st.Begin(s, prompt)
			st.Pending(s, 1)
			if running, err := s.Abort(st.Ctx); err != nil || !running {
				t.Fatalf("the abort ended a turn: %v, %v", running, err)
			}
			if out := st.Say(s, "again"); out.GetText() != "You said: again" {
				t.Errorf("the agent said %v", out)
			}
			if list, err := s.Pending(st.Ctx); err != nil || len(list) > 0 {
				t.Errorf("pending are %v, %v", list, err)
			}
		})
	}
}
