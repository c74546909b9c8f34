package prompt_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/prompt"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/bridgetest"
)

// If the CLI had not accepted a prompt when the bridge was killed, the next process sends it again, in order
// and before later prompts. Readers and repeated requests receive its new id, also after further restarts.
func TestPromptsOutliveTheBridge(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, bridgetest.Hanging, bridgetest.Stored)
	r.Create("s1")
	r.Ask("s1", "hi")
	r.Begin("s1", "long")
	var asked []*bridgev1.SendRequest
	var given []*bridgev1.SendResponse
	for i := range 3 {
		asked = append(asked, bridgetest.Repeatable("s1", fmt.Sprint("queued ", i)))
		given = append(given, r.Send(asked[i]))
	}
	r = r.Restart()
	bridgetest.Eventually(t, "the prompts", func() bool { return slices.Contains(r.Conversation("s1"), "queued 2") })
	r.Ask("s1", "later")
	want := []string{"hi", "long", "queued 0", "queued 1", "queued 2", "later"}
	for life := range 2 {
		if got := r.Conversation("s1"); !slices.Equal(got, want) {
			t.Errorf("life %d: the conversation has %q, want %q", life, got, want)
		}
		moved := map[string]string{}
		s := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: "s1", After: given[0].GetPosition()}}})
		s.Frame("the end of the replay", func(f *bridgev1.SubscribeResponse) bool {
			for _, id := range f.GetMessageResent().GetMessageIds() {
				moved[id] = f.GetMessageResent().GetNewMessageIds()[0]
			}
			return f.GetCaughtUp() != nil
		})
		s.Stop()
		for i, q := range asked {
			again := r.Send(q)
			if again.GetMessageId() != given[i].GetMessageId() || again.GetResentMessageId() == "" || again.GetResentMessageId() != moved[again.GetMessageId()] {
				t.Errorf("life %d: %q is answered %v, readers are told %q", life, q.GetRequestId(), again, moved)
			}
		}
		r = r.Restart()
	}
}

// Waiting for a prompt's turn goes on in the next life of the bridge.
func TestWaitingOutlivesTheBridge(t *testing.T) {
	t.Parallel()
	r := bridgetest.New(t, bridgetest.Hanging, bridgetest.Stored)
	r.Create("s1")
	r.Ask("s1", "hi")
	r.Begin("s1", "long")
	q := &bridgev1.SendAndWaitRequest{SessionId: "s1", RequestId: "q", Prompt: &bridgev1.Prompt{Text: "queued"}}
	go func() { _, _ = r.Turns.SendAndWait(r.Context(), q) }()
	bridgetest.Eventually(t, "the answer on disk", func() bool {
		s, err := r.Store().Open(t.Context(), "s1")
		id, _, ok := s.Prompts().Outbox().AnswerTo(prompt.RequestKey(t.Context(), backend.OpSendAndWait, "q"))
		state, _ := r.Directory.Outbox("s1").Load()
		return err == nil && ok && strings.Contains(string(state), id)
	})
	r = r.Restart()
	out, err := r.Turns.SendAndWait(t.Context(), q)
	if err != nil || out.GetOutcome().GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED {
		t.Errorf("the next life answers %v, %v", out, err)
	}
	if got := r.Conversation("s1"); !slices.Equal(got, []string{"hi", "long", "queued"}) {
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
		before func(r *bridgetest.Bridge)
	}{
		"its own secrets are gone": {prompt: []func(*bridgev1.Prompt){headers}},
		"the session's are":        {create: []func(*bridgev1.CreateSessionRequest){secret}},
		"the queue was changed":    {before: func(r *bridgetest.Bridge) { _, _ = r.Store().Open(r.T.Context(), "s1"); changeQueue(r, "s1") }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := bridgetest.New(t, bridgetest.Hanging, bridgetest.Stored)
			r.Create("s1", test.create...)
			r.Ask("s1", "hi")
			r.Begin("s1", "long")
			q := bridgetest.Repeatable("s1", "queued", test.prompt...)
			given := r.Send(q)
			if test.before != nil {
				test.before(r)
			}
			for life := range 3 {
				r = r.Restart()
				for _, after := range []*bridgev1.Position{nil, given.GetPosition()} {
					s := r.Subscribe(&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: "s1", After: after}}})
					end := s.Frame("the loss", func(f *bridgev1.SubscribeResponse) bool {
						return slices.Contains(f.GetTurnEnded().GetMessageIds(), given.GetMessageId())
					}).GetTurnEnded()
					s.Stop()
					if end.GetOutcome().GetStatus() != bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST ||
						end.GetFailure().GetReason() != bridgev1.ErrorReason_ERROR_REASON_SEND_UNCONFIRMED {
						t.Errorf("life %d: readers after %v are told %v", life, after, end)
					}
				}
				if _, err := r.Turns.Send(t.Context(), q); fault.ReasonOf(err) != fault.SendUnconfirmed {
					t.Errorf("life %d: the repeated request is answered %v", life, err)
				}
				if slices.Contains(r.Conversation("s1"), "queued") {
					t.Errorf("life %d: the prompt was given again", life)
				}
			}
		})
	}
}

// changeQueue has the CLI's queue changed, which the fake CLI does not know how to.
func changeQueue(r *bridgetest.Bridge, id string) {
	s, err := r.Store().Open(r.T.Context(), id)
	if err != nil {
		r.T.Fatal(err)
	}
	if err := s.Prompts().Edit(r.T.Context()); err != nil {
		r.T.Fatal(err)
	}
}

// A prompt is not sent again after an abort, or after the end of the session's use.
func TestPromptsThatWereEnded(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(r *bridgetest.Bridge){
		"by an abort": func(r *bridgetest.Bridge) {
			if _, err := r.Sessions.Abort(r.T.Context(), &bridgev1.AbortRequest{SessionId: "s1"}); err != nil {
				r.T.Fatal(err)
			}
		},
		"with the session's use": func(r *bridgetest.Bridge) { r.Disconnect("s1") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := bridgetest.New(t, bridgetest.Hanging, bridgetest.Stored)
			r.Create("s1")
			r.Ask("s1", "hi")
			r.Begin("s1", "long")
			r.Send(bridgetest.Repeatable("s1", "queued"))
			end(r)
			r = r.Restart()
			if _, err := r.Sessions.ResumeSession(t.Context(), &bridgev1.ResumeSessionRequest{SessionId: "s1"}); err != nil {
				t.Fatal(err)
			}
			r.Ask("s1", "later")
			if got := r.Conversation("s1"); slices.Contains(got, "queued") {
				t.Errorf("the conversation has %q", got)
			}
		})
	}
}
