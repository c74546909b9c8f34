package callback

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
)

// boardOf joins a session as a participant that shows the board, under a separate id.
func boardOf(st *harness.Scripted, s *copilot.Session, id string) *harness.Attached {
	st.T.Helper()
	start := harness.JoinOf(s.ID(), nil)
	showing("board")(start)
	start.CanvasProvider = &cliv1.CanvasProviderIdentity{Id: id, Name: proto.String(id)}
	start.ExtensionInfo = &cliv1.ExtensionIdentity{Source: "tests", Name: id}
	return st.Attach(start)
}

// openAt opens the board of a provider, which answers.
func openAt(st *harness.Scripted, s *copilot.Session, p *harness.Attached, provider, instance string) string {
	st.T.Helper()
	got := invoke(st, s, "session.canvas.open",
		map[string]any{"canvasId": "board", "instanceId": instance, "extensionId": provider})
	var cb *bridgev1.Callback
	p.Frame("the canvas", func(f *bridgev1.SubscribeResponse) bool {
		cb = f.GetCallbackRequested().GetCallback()
		return cb.GetCanvasOpen().GetInstanceId() == instance && f.GetCallbackRequested().GetOffered()
	})
	answer, err := copilot.AnswerWith(&cliv1.CallbackCanvasServiceOpenResponse{Url: proto.String("http://127.0.0.1/" +
		instance)})
	if err != nil {
		st.T.Fatal(err)
	}
	if r := p.Answer(cb.GetCallbackId(), answer); r.Failed != nil {
		st.T.Fatalf("the answer was refused: %v", r.Failed)
	}
	return got()
}

// TestSatelliteLife: two participants show a canvas of the same name under separate identities; the session goes on
// with them, without them, and after its CLI was killed.
func TestSatelliteLife(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t,
		harness.HostConfig{Raw: true, Change: func(c *app.Config) { c.MultiConnection = true }})
	c := st.Config()
	rendering(st, c)
	c.ExcludedTools = &cliv1.StringList{Items: []string{"view"}}
	s := st.Create(copilot.SessionOptions{Config: c})
	one, two := boardOf(st, s, "app:one"), boardOf(st, s, "app:two")
	same(st, s, "first")
	for p, id := range map[*harness.Attached]string{one: "app:one", two: "app:two"} {
		if text := openAt(st, s, p, id, "of-"+id[4:]); !strings.Contains(text, `"`+id+`"`) {
			t.Errorf("opened as %s", text)
		}
	}
	two.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Leave{Leave: &bridgev1.AttachLeave{}}})
	if gone := st.First(s,
		"session.canvas.unavailable").GetEvent().GetSessionCanvasUnavailable(); gone.GetExtensionId() != "app:two" {
		t.Errorf("unavailable is %v", gone)
	}
	same(st, s, "second")

	st.Kill(s.ID())
	same(st, s, "third")
	if text := openAt(st, s, one, "app:one", "again"); !strings.Contains(text, "127.0.0.1/again") {
		t.Errorf("opened as %s", text)
	}
	if info, err := s.Get(st.Ctx); err != nil || !strings.Contains(unspaced(info.Proto.String()), `canvases:"board"`) {
		t.Errorf("the session is %v, %v", info, err)
	}
	if err := s.Delete(st.Ctx); err != nil {
		t.Fatal(err)
	}
}

// same has a turn, and checks that it is streamed, once, with the session's own tools.
func same(st *harness.Scripted, s *copilot.Session, text string) {
	st.T.Helper()
	before := len(st.All(s, "assistant.message_delta"))
	if out := st.Say(s, text); out.Text() != "You said: "+text {
		st.T.Errorf("the agent said %q", out.Text())
	}
	var streamed string
	for _, ev := range st.All(s, "assistant.message_delta")[before:] {
		streamed += ev.GetEvent().GetAssistantMessageDelta().GetDeltaContent()
	}
	if streamed != "You said: "+text {
		st.T.Errorf("streamed is %q", streamed)
	}
	for _, name := range harness.Names(st.LastModelRequest().Tools) {
		if name == "view" {
			st.T.Error("the excluded tool is back")
		}
	}
}

// TestSatelliteOfCreator: a session that is created with a canvas finds itself in a runtime
// that has a connection for it, in a server that knows nothing of such.
func TestSatelliteOfCreator(t *testing.T) {
	t.Parallel()
	st := harness.NewOwnScripted(t, harness.HostConfig{Raw: true})
	c := st.Config()
	rendering(st, c)
	start := &bridgev1.AttachStart{
		Session:        &bridgev1.AttachStart_Create{Create: &bridgev1.CreateSessionRequest{Config: c}},
		Filter:         &bridgev1.EventFilter{ExcludeAll: true},
		CanvasProvider: &cliv1.CanvasProviderIdentity{Id: "app:one"},
	}
	showing("board")(start)
	p := st.Attach(start)
	s := st.Client.Session(p.Started.GetSession().GetSessionId())
	st.Own(s.ID())
	if text := openAt(st, s, p, "app:one", "first"); !strings.Contains(text, "127.0.0.1/first") {
		t.Errorf("opened as %s", text)
	}
	if err := s.Disconnect(st.Ctx); err != nil {
		t.Fatal(err)
	}
}

// TestNoSatellites: without a runtime that takes several connections the participant gets an error, and the session is
// none the worse.
func TestNoSatellites(t *testing.T) {
	t.Parallel()
	st := harness.NewScripted(t)
	s := st.Create(copilot.SessionOptions{})
	start := harness.JoinOf(s.ID(), nil)
	showing("board")(start)
	_, err := st.TryAttach(st.Client, start)
	harness.WantField(t, copilot.FromError(err), codes.FailedPrecondition,
		bridgev1.ErrorReason_ERROR_REASON_FEATURE_DISABLED, "start.canvases")
	start.Canvases, start.CanvasProvider = nil, &cliv1.CanvasProviderIdentity{Id: "connection:1"}
	_, err = st.TryAttach(st.Client, start)
	harness.WantField(t, copilot.FromError(err), codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD,
		"start.canvas_provider.id")
	st.Say(s, "still there")
}

// TestAllAbstain: when all participants abstain, none waits for another; but a caller that answers for the session may
// still answer.
func TestAllAbstain(t *testing.T) {
	t.Parallel()
	for name, covered := range map[string]bool{"nobody is left": false, "the session answers": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := harness.NewScripted(t, harness.OnUser("touch", harness.Call("bash", harness.Shell("touch made"))),
				harness.OnResult("bash", harness.Say("told: {{tool_result}}")))
			opts := copilot.SessionOptions{}
			if covered {
				opts.SessionHandlers = &bridgev1.Handlers{Permission: true}
			}
			s := st.Create(opts)
			one, two := st.Attach(harness.JoinOf(s.ID(),
				&bridgev1.Handlers{Permission: true})), st.Attach(harness.JoinOf(s.ID(),
				&bridgev1.Handlers{Permission: true}))
			turn := st.GoTurn(s, "touch")
			id := one.Requested().GetCallbackId()
			abstain := &bridgev1.Answer{Answer: &bridgev1.Answer_Abstain{Abstain: &bridgev1.Abstain{}}}
			for _, p := range []*harness.Attached{one, two} {
				p.Requested()
				if r := p.Answer(id, abstain); r.Failed != nil {
					t.Fatalf("abstaining failed: %v", r.Failed)
				}
			}
			want := bridgev1.CallbackOutcome_CALLBACK_OUTCOME_UNHANDLED
			if covered {
				want = bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED
				st.Pending(s, 1)
				if err := s.Resolve(st.Ctx, id, copilot.AnswerPermission(copilot.ApproveOnce())); err != nil {
					t.Fatal(err)
				}
			}
			if over := one.Resolved(id); over.GetOutcome() != want {
				t.Errorf("it ended %v", over)
			}
			turn()
			if st.Exists("made") != covered {
				t.Errorf("made: %v", st.Exists("made"))
			}
		})
	}
}
