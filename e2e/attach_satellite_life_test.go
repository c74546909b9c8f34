package e2e

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/app"
)

// boardOf joins a session as one who shows the board, under an id of its own.
func (st *stage) boardOf(s *copilot.Session, id string) *attached {
	st.t.Helper()
	start := joinOf(s.ID(), nil)
	showing("board")(start)
	start.CanvasProvider = &cliv1.CanvasProviderIdentity{Id: id, Name: proto.String(id)}
	start.ExtensionInfo = &cliv1.ExtensionIdentity{Source: "tests", Name: id}
	return st.attach(start)
}

// openAt opens the board of a provider, which answers.
func (st *stage) openAt(s *copilot.Session, p *attached, provider, instance string) string {
	st.t.Helper()
	got := st.invoke(s, "session.canvas.open", map[string]any{"canvasId": "board", "instanceId": instance, "extensionId": provider})
	var cb *bridgev1.Callback
	p.frame("the canvas", func(f *bridgev1.SubscribeResponse) bool {
		cb = f.GetCallbackRequested().GetCallback()
		return cb.GetCanvasOpen().GetInstanceId() == instance && f.GetCallbackRequested().GetOffered()
	})
	answer, err := copilot.AnswerWith(&cliv1.CallbackCanvasServiceOpenResponse{Url: proto.String("http://127.0.0.1/" + instance)})
	if err != nil {
		st.t.Fatal(err)
	}
	if r := p.answer(cb.GetCallbackId(), answer); r.failed != nil {
		st.t.Fatalf("the answer was refused: %v", r.failed)
	}
	return got()
}

// TestSatelliteLife: two show a canvas of the same name under identities of their own; the
// session goes on as it was with them, without them, and after its CLI was killed.
func TestSatelliteLife(t *testing.T) {
	t.Parallel()
	st := newOwnStage(t, hostConfig{raw: true, change: func(c *app.Config) { c.MultiConnection = true }})
	c := st.config()
	rendering(st, c)
	c.ExcludedTools = &cliv1.StringList{Items: []string{"view"}}
	s := st.create(copilot.SessionOptions{Config: c})
	one, two := st.boardOf(s, "app:one"), st.boardOf(s, "app:two")
	st.same(s, "first")
	for p, id := range map[*attached]string{one: "app:one", two: "app:two"} {
		if text := st.openAt(s, p, id, "of-"+id[4:]); !strings.Contains(text, `"`+id+`"`) {
			t.Errorf("opened as %s", text)
		}
	}
	two.send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Leave{Leave: &bridgev1.AttachLeave{}}})
	if gone := st.first(s, "session.canvas.unavailable").GetEvent().GetSessionCanvasUnavailable(); gone.GetExtensionId() != "app:two" {
		t.Errorf("unavailable is %v", gone)
	}
	st.same(s, "second")

	st.kill(s.ID())
	st.same(s, "third")
	if text := st.openAt(s, one, "app:one", "again"); !strings.Contains(text, "127.0.0.1/again") {
		t.Errorf("opened as %s", text)
	}
	if info, err := s.Get(st.ctx); err != nil || !strings.Contains(unspaced(info.String()), `canvases:"board"`) {
		t.Errorf("the session is %v, %v", info, err)
	}
	if err := s.Delete(st.ctx); err != nil {
		t.Fatal(err)
	}
}

// same has a turn, and checks that it is streamed, once, with the session's own tools.
func (st *stage) same(s *copilot.Session, text string) {
	st.t.Helper()
	before := len(st.all(s, "assistant.message_delta"))
	if out := st.say(s, text); out.GetText() != "You said: "+text {
		st.t.Errorf("the agent said %q", out.GetText())
	}
	var streamed string
	for _, ev := range st.all(s, "assistant.message_delta")[before:] {
		streamed += ev.GetEvent().GetAssistantMessageDelta().GetDeltaContent()
	}
	if streamed != "You said: "+text {
		st.t.Errorf("streamed is %q", streamed)
	}
	for _, name := range names(st.lastModelRequest().Tools) {
		if name == "view" {
			st.t.Error("the excluded tool is back")
		}
	}
}

// TestSatelliteOfCreator: a session that is created with a canvas finds itself in a runtime
// that has a connection for it, in a server that knows nothing of such.
func TestSatelliteOfCreator(t *testing.T) {
	t.Parallel()
	st := newOwnStage(t, hostConfig{raw: true})
	c := st.config()
	rendering(st, c)
	start := &bridgev1.AttachStart{
		Session: &bridgev1.AttachStart_Create{Create: &bridgev1.CreateSessionRequest{Config: c}}, Filter: &bridgev1.EventFilter{None: true},
		CanvasProvider: &cliv1.CanvasProviderIdentity{Id: "app:one"},
	}
	showing("board")(start)
	p := st.attach(start)
	s := st.client.Session(p.started.GetSession().GetSessionId())
	st.own(s.ID())
	if text := st.openAt(s, p, "app:one", "first"); !strings.Contains(text, "127.0.0.1/first") {
		t.Errorf("opened as %s", text)
	}
	if err := s.Disconnect(st.ctx); err != nil {
		t.Fatal(err)
	}
}

// TestNoSatellites: without a runtime that takes several connections the participant is told
// so, and the session is none the worse.
func TestNoSatellites(t *testing.T) {
	t.Parallel()
	st := newStage(t)
	s := st.create(copilot.SessionOptions{})
	start := joinOf(s.ID(), nil)
	showing("board")(start)
	_, err := st.tryAttach(st.client, start)
	wantField(t, copilot.FromError(err), codes.FailedPrecondition, bridgev1.ErrorReason_ERROR_REASON_FEATURE_DISABLED, "start.canvases")
	start.Canvases, start.CanvasProvider = nil, &cliv1.CanvasProviderIdentity{Id: "connection:1"}
	_, err = st.tryAttach(st.client, start)
	wantField(t, copilot.FromError(err), codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_INVALID_FIELD, "start.canvas_provider.id")
	st.say(s, "still there")
}

// TestAllAbstain: when all who were asked leave it to others, nobody waits for anybody;
// but whoever answers for the session may still.
func TestAllAbstain(t *testing.T) {
	t.Parallel()
	for name, covered := range map[string]bool{"nobody is left": false, "the session answers": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := newStage(t, onUser("touch", call("bash", shell("touch made"))), onResult("bash", say("told: {{tool_result}}")))
			opts := copilot.SessionOptions{}
			if covered {
				opts.SessionHandlers = &bridgev1.Handlers{Permission: true}
			}
			s := st.create(opts)
			one, two := st.attach(joinOf(s.ID(), &bridgev1.Handlers{Permission: true})), st.attach(joinOf(s.ID(), &bridgev1.Handlers{Permission: true}))
			turn := st.goTurn(s, "touch")
			id := one.requested().GetCallbackId()
			abstain := &bridgev1.Answer{Answer: &bridgev1.Answer_Abstain{Abstain: &bridgev1.Abstain{}}}
			for _, p := range []*attached{one, two} {
				p.requested()
				if r := p.answer(id, abstain); r.failed != nil {
					t.Fatalf("abstaining failed: %v", r.failed)
				}
			}
			want := bridgev1.CallbackOutcome_CALLBACK_OUTCOME_UNHANDLED
			if covered {
				want = bridgev1.CallbackOutcome_CALLBACK_OUTCOME_ANSWERED
				st.pending(s, 1)
				if err := s.Resolve(st.ctx, id, copilot.AnswerPermission(copilot.ApproveOnce())); err != nil {
					t.Fatal(err)
				}
			}
			if over := one.resolved(id); over.GetOutcome() != want {
				t.Errorf("it ended %v", over)
			}
			turn()
			if st.exists("made") != covered {
				t.Errorf("made: %v", st.exists("made"))
			}
		})
	}
}
