package runtime

import (
	"slices"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/server/rpc"
)

// TestAbortWhileAsking aborts a turn that waits for an answer: nothing is pending when the next turn has ended, and a
// prompt right behind the abort completes.
func TestAbortWhileAsking(t *testing.T) {
	t.Parallel()
	for name, prompt := range map[string]string{"tool": "work", "question": "question", "permission": "touch"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st, s := asking(t)
			st.Say(s, "first")
			st.Begin(s, prompt)
			st.Pending(s, 1)
			if running, err := s.Abort(st.Ctx); err != nil || !running {
				t.Fatalf("the abort ended a turn: %v, %v", running, err)
			}
			if out := st.Say(s, "again"); out.Text() != "You said: again" {
				t.Errorf("the agent said %v", out)
			}
			if list, err := s.Pending(st.Ctx); err != nil || len(list) > 0 {
				t.Errorf("pending are %v, %v", list, err)
			}
		})
	}
}

// asking returns a session in which the prompts work, question and touch each wait for an answer of nobody.
func asking(t *testing.T, rules ...harness.Rule) (*harness.Scripted, *copilot.Session) {
	t.Helper()
	st := harness.NewOwnScripted(t, harness.HostConfig{}, append(rules, harness.OnUser("work", harness.Call("works", nil)),
		harness.OnUser("touch", harness.Call("bash", harness.Shell("touch it"))),
		harness.OnUser("question", harness.Call("ask_user", map[string]any{"question": "Which colour?"})))...)
	config := st.Config()
	config.Tools = []*cliv1.ToolDefinition{{Name: "works", Description: "Works", SkipPermission: proto.Bool(true)}}
	created, err := st.Client.Sessions().CreateSession(st.Ctx, &bridgev1.CreateSessionRequest{Config: config,
		Handlers: &bridgev1.Handlers{Permission: true,
			Kinds: []bridgev1.CallbackKind{bridgev1.CallbackKind_CALLBACK_KIND_USER_INPUT}}})
	if err != nil {
		t.Fatal(err)
	}
	s := st.Client.Session(created.GetSession().GetSessionId())
	st.Own(s.ID())
	return st, s
}

// TestShutdownWhileAsking shuts a session's work down while the CLI waits for an answer: the next prompt completes in
// the session that is loaded again, and nothing of the work before it is pending or done.
func TestShutdownWhileAsking(t *testing.T) {
	t.Parallel()
	for name, prompt := range map[string]string{"tool": "work", "question": "question", "permission": "touch"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st, s := asking(t)
			st.Say(s, "first")
			st.Begin(s, prompt)
			st.Pending(s, 1)
			st.Begin(s, "queued")
			exact := metadata.AppendToOutgoingContext(st.Ctx, rpc.MetadataFidelity, rpc.FidelityExact)
			if _, err := cliv1.NewSessionServiceClient(st.Client.Conn()).Shutdown(exact,
				&cliv1.SessionServiceShutdownRequest{SessionId: s.ID()}); err != nil {
				t.Fatal(err)
			}
			if list, err := s.Pending(st.Ctx); err != nil || len(list) > 0 {
				t.Errorf("pending are %v, %v", list, err)
			}
			if out := st.Say(s, "again"); out.Text() != "You said: again" {
				t.Errorf("the agent said %v", out)
			}
			if list, err := s.Pending(st.Ctx); err != nil || len(list) > 0 {
				t.Errorf("pending are %v, %v", list, err)
			}
			if texts := harness.UserTexts(st); slices.Contains(texts, "queued") {
				t.Errorf("the model was told %q", texts)
			}
		})
	}
}
