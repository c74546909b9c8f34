package bridge

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/settle"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/faultfs"
)

// prompted is a request that may come again.
func prompted(id, text string, change ...func(*bridgev1.Prompt)) *bridgev1.SendRequest {
	p := &bridgev1.Prompt{Text: text}
	for _, c := range change {
		c(p)
	}
	return &bridgev1.SendRequest{SessionId: id, RequestId: text, Prompt: p}
}

func (r *rig) sent(q *bridgev1.SendRequest) *bridgev1.SendResponse {
	r.t.Helper()
	out, err := r.Turns.Send(r.t.Context(), q)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// texts are the user's messages in the journal, in order.
func (r *rig) conversation(id string) (out []string) {
	r.t.Helper()
	s := r.subscribe(&bridgev1.SubscribeRequest{Sessions: one(id)})
	defer s.stop()
	s.frame("the end of the replay", func(f *bridgev1.SubscribeResponse) bool {
		for _, e := range f.GetEvents().GetEvents() {
			if m := e.GetEvent().GetUserMessage(); m != nil {
				out = append(out, m.GetContent())
			}
		}
		return f.GetCaughtUp() != nil
	})
	return out
}

// If the CLI had not accepted a prompt when the bridge was killed, the next process sends it again, in order
// and before later prompts. Readers and repeated requests receive its new id, also after further restarts.
func TestPromptsOutliveTheBridge(t *testing.T) {
	t.Parallel()
	r := newKept(t, always(hanging))
	r.create("s1")
	r.ask("s1", "hi")
	r.begin("s1", "long")
	var asked []*bridgev1.SendRequest
	var given []*bridgev1.SendResponse
	for i := range 3 {
		asked = append(asked, prompted("s1", fmt.Sprint("queued ", i)))
		given = append(given, r.sent(asked[i]))
	}
	r = r.reborn()
	eventually(t, "the prompts", func() bool { return slices.Contains(r.conversation("s1"), "queued 2") })
	r.ask("s1", "later")
	want := []string{"hi", "long", "queued 0", "queued 1", "queued 2", "later"}
	for life := range 2 {
		if got := r.conversation("s1"); !slices.Equal(got, want) {
			t.Errorf("life %d: the conversation has %q, want %q", life, got, want)
		}
		moved := map[string]string{}
		s := r.subscribe(&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: "s1", After: given[0].GetPosition()}}})
		s.frame("the end of the replay", func(f *bridgev1.SubscribeResponse) bool {
			for _, id := range f.GetMessageResent().GetMessageIds() {
				moved[id] = f.GetMessageResent().GetNewMessageIds()[0]
			}
			return f.GetCaughtUp() != nil
		})
		s.stop()
		for i, q := range asked {
			again := r.sent(q)
			if again.GetMessageId() != given[i].GetMessageId() || again.GetResentMessageId() == "" || again.GetResentMessageId() != moved[again.GetMessageId()] {
				t.Errorf("life %d: %q is answered %v, readers are told %q", life, q.GetRequestId(), again, moved)
			}
		}
		r = r.reborn()
	}
}

// Waiting for a prompt's turn goes on in the next life of the bridge.
func TestWaitingOutlivesTheBridge(t *testing.T) {
	t.Parallel()
	r := newKept(t, always(hanging))
	r.create("s1")
	r.ask("s1", "hi")
	r.begin("s1", "long")
	q := &bridgev1.SendAndWaitRequest{SessionId: "s1", RequestId: "q", Prompt: &bridgev1.Prompt{Text: "queued"}}
	go func() { _, _ = r.Turns.SendAndWait(r.ctx, q) }()
	eventually(t, "the answer on disk", func() bool {
		s, err := r.store.Open(t.Context(), "s1")
		id, _, ok := s.Prompts().Box().AnswerTo(settle.Key(t.Context(), idempotency.SendAndWait, "q"))
		state, _ := r.directory.Outbox("s1").Read("log")
		return err == nil && ok && strings.Contains(string(state), id)
	})
	r = r.reborn()
	out, err := r.Turns.SendAndWait(t.Context(), q)
	if err != nil || out.GetOutcome().GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Errorf("the next life answers %v, %v", out, err)
	}
	if got := r.conversation("s1"); !slices.Equal(got, []string{"hi", "long", "queued"}) {
		t.Errorf("the conversation has %q", got)
	}
}

// A prompt that cannot be sent again is reported as lost to every reader, after any number of restarts, and to
// repeated requests.
func TestPromptsThatAreLost(t *testing.T) {
	t.Parallel()
	headers := func(p *bridgev1.Prompt) { p.RequestHeaders = map[string]string{"X-Key": "s3cret"} }
	secret := func(q *bridgev1.CreateSessionRequest) {
		q.Config.Provider = &cliv1.ProviderConfig{BaseUrl: "http://127.0.0.1:1", ApiKey: proto.String("s3cret")}
	}
	for name, test := range map[string]struct {
		create []func(*bridgev1.CreateSessionRequest)
		prompt []func(*bridgev1.Prompt)
		before func(r *keptLife)
	}{
		"its own secrets are gone": {prompt: []func(*bridgev1.Prompt){headers}},
		"the session's are":        {create: []func(*bridgev1.CreateSessionRequest){secret}},
		"the queue was changed":    {before: func(r *keptLife) { _, _ = r.store.Open(r.t.Context(), "s1"); r.changeQueue("s1") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newKept(t, always(hanging))
			r.create("s1", test.create...)
			r.ask("s1", "hi")
			r.begin("s1", "long")
			q := prompted("s1", "queued", test.prompt...)
			given := r.sent(q)
			if test.before != nil {
				test.before(r)
			}
			for life := range 3 {
				r = r.reborn()
				for _, after := range []*bridgev1.Position{nil, given.GetPosition()} {
					s := r.subscribe(&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: "s1", After: after}}})
					end := s.frame("the loss", func(f *bridgev1.SubscribeResponse) bool {
						return slices.Contains(f.GetTurnEnded().GetMessageIds(), given.GetMessageId())
					}).GetTurnEnded()
					s.stop()
					if end.GetOutcome().GetStatus() != bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST ||
						end.GetFailure().GetReason() != bridgev1.ErrorReason_ERROR_REASON_SEND_UNCONFIRMED {
						t.Errorf("life %d: readers after %v are told %v", life, after, end)
					}
				}
				if _, err := r.Turns.Send(t.Context(), q); fault.ReasonOf(err) != fault.SendUnconfirmed {
					t.Errorf("life %d: the repeated request is answered %v", life, err)
				}
				if slices.Contains(r.conversation("s1"), "queued") {
					t.Errorf("life %d: the prompt was given again", life)
				}
			}
		})
	}
}

// changeQueue has the CLI's queue changed, which the fake CLI does not know how to.
func (r *rig) changeQueue(id string) {
	s, err := r.store.Open(r.t.Context(), id)
	if err != nil {
		r.t.Fatal(err)
	}
	s.Prompts().Edit()
}

// A prompt is not sent again after an abort, or after the end of the session's use.
func TestPromptsThatWereEnded(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(r *keptLife){
		"by an abort": func(r *keptLife) {
			if _, err := r.Sessions.Abort(r.t.Context(), &bridgev1.AbortRequest{SessionId: "s1"}); err != nil {
				r.t.Fatal(err)
			}
		},
		"with the session's use": func(r *keptLife) { r.disconnect("s1") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newKept(t, always(hanging))
			r.create("s1")
			r.ask("s1", "hi")
			r.begin("s1", "long")
			r.sent(prompted("s1", "queued"))
			end(r)
			r = r.reborn()
			if _, err := r.Sessions.ResumeSession(t.Context(), &bridgev1.ResumeSessionRequest{SessionId: "s1"}); err != nil {
				t.Fatal(err)
			}
			r.ask("s1", "later")
			if got := r.conversation("s1"); slices.Contains(got, "queued") {
				t.Errorf("the conversation has %q", got)
			}
		})
	}
}

// An abort by the CLI's own method ends prompts that no runtime has, like SessionService.Abort.
func TestSurfaceAbort(t *testing.T) {
	t.Parallel()
	r := newLives(t, func(life int) fakecli.Script {
		s := hanging
		if life > 0 { // the session stays unloaded
			s.Faults = []fakecli.MethodFault{{Method: "session.resume", Fault: fakecli.Fault{Kind: fakecli.FaultHang}}}
		}
		return s
	})
	r.create("s1")
	r.ask("s1", "hi")
	r.begin("s1", "long")
	q := prompted("s1", "queued")
	r.sent(q)
	watching := r.subscribe(&bridgev1.SubscribeRequest{Sessions: one("s1")})
	watching.until("<caught_up>")
	r.life().Kill()
	watching.restarted()
	s, err := r.store.Open(t.Context(), "s1")
	if err != nil || s.Prompts().Box().Empty() {
		t.Fatalf("no prompt is stored, %v", err)
	}
	abort := &cliv1.SessionServiceAbortRequest{SessionId: "s1"}
	out, err := invokeCLI(r.rig, "session.abort", abort, &cliv1.SessionServiceAbortResponse{}, false, "")
	if err != nil || !out.GetSuccess() {
		t.Errorf("session.abort returns %v, %v", out, err)
	}
	if list := s.Prompts().Box().Entries(); len(list) > 0 {
		t.Errorf("%d prompts are stored after the abort", len(list))
	}
}

// A full disk takes no prompts: they are acknowledged all the same, and the answer says so.
func TestPromptOnAFullDisk(t *testing.T) {
	t.Parallel()
	o := openOnDisk(t, t.TempDir(), t.TempDir(), &faultfs.FS{})
	o.create("s1")
	if out := o.sent(prompted("s1", "hi")); out.GetInMemoryOnly() {
		t.Error("a disk with room does not have the prompt")
	}
	o.disk.Room(0)
	if out := o.sent(prompted("s1", "on")); !out.GetInMemoryOnly() || out.GetMessageId() == "" {
		t.Errorf("on a full disk the answer is %v", out)
	}
	s, err := o.store.Open(t.Context(), "s1")
	if err != nil || s.Snapshot().GetStorageProblem() == "" {
		t.Errorf("the session does not say what is wrong, %v", err)
	}
	o.disk.Room(-1)
}
