package session

import (
	"crypto/rand"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime/quirks"
	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
)

func TestSessionStateful(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, `
rules:
  - when: {user: "What is my name", body: "My name is Ada"}
    reply: [{text: "Ada."}]
default: {reply: [{text: "Noted."}]}`)
	s := r.Session(r.Options())
	if got := s.Ask("My name is Ada."); got != "Noted." {
		t.Errorf("first answer is %q", got)
	}
	if got := s.Ask("What is my name?"); got != "Ada." {
		t.Errorf("second answer is %q", got)
	}
	last := r.LastModelRequest()
	var said []string
	for _, m := range last.Messages {
		said = append(said, string(m.Role)+" "+m.Text)
	}
	talk := strings.Join(said, "\n")
	for _, want := range []string{"My name is Ada.", "assistant Noted.", "What is my name?"} {
		if !strings.Contains(talk, want) {
			t.Errorf("the model was not told %q, but:\n%s", want, talk)
		}
	}
	harness.WantOrder(t, s.RecordedTypes(), "session.start", "user.message", "assistant.message", "user.message",
		"assistant.message")
}

// TestSessionStartEvent finds the event that the CLI sends before it has replied to the
// call that makes the session.
func TestSessionStartEvent(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	s := r.Session(r.Options())
	for ev, err := range s.Events(r.Ctx, copilot.FromBeginning()) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.GetEvent().GetEventType() != "session.start" {
			continue // others come in any order
		}
		start := ev.GetEvent().GetSessionStart()
		if start.GetSessionId() != s.ID() || start.GetSelectedModel() != offlinemodel.DefaultModel ||
			start.GetContext().GetCwd() != r.Dir {
			t.Errorf("session.start says %v", start)
		}
		return
	}
	t.Error("the events ended")
}

func TestSessionEventOrder(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	s := r.Session(r.Options())
	s.Submit("hello")
	s.WaitFor("session.idle")
	events := s.Recorded()
	harness.WantOrder(t, harness.Types(events), "user.message", "assistant.turn_start", "assistant.message",
		"assistant.turn_end", "session.idle")
	for i, ev := range events {
		if got := ev.GetPosition().GetSeq(); got != uint64(i+1) {
			t.Errorf("event %d has position %d", i, got)
		}
	}
	for _, ev := range events {
		switch data := ev.GetEvent(); data.GetEventType() {
		case "user.message":
			if got := data.GetUserMessage().GetContent(); got != "hello" {
				t.Errorf("user.message says %q", got)
			}
		case "assistant.message":
			if got := data.GetAssistantMessage().GetContent(); got != "You said: hello" {
				t.Errorf("assistant.message says %q", got)
			}
		case "session.idle":
			if !data.GetEphemeral() {
				t.Error("session.idle is not ephemeral")
			}
		}
	}
	// The durable events are the events that the CLI recorded, in the same order.
	var durable []string
	for _, ev := range events {
		if !ev.GetEvent().GetEphemeral() {
			durable = append(durable, ev.GetEvent().GetId())
		}
	}
	var recorded []string
	for _, one := range s.Record() {
		if one.Type != "session.usage_record" { // CLI 1.0.102 writes these for itself
			recorded = append(recorded, one.ID)
		}
	}
	if !slices.Equal(durable, recorded) {
		t.Errorf("durable events are %q, the CLI recorded %q", durable, recorded)
	}
}

func TestSessionStreaming(t *testing.T) {
	t.Parallel()
	const text = "A long answer, said in many small pieces, one after the other."
	for _, on := range []bool{true, false} {
		name := map[bool]string{true: "on", false: "off"}[on]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := harness.NewFixture(t, `
stream: {chunk_size: 8}
default: {reply: [{text: "`+text+`"}]}`)
			s := r.Session(r.Options(func(c *cliv1.SessionConfig) { c.Streaming = proto.Bool(on) }))
			s.Ask("Tell me")
			s.WaitFor("session.idle")
			var pieces []string
			for _, ev := range s.Recorded() {
				if d := ev.GetEvent().GetAssistantMessageDelta(); d != nil {
					pieces = append(pieces, d.GetDeltaContent())
				}
			}
			if got := r.LastModelRequest().Streaming; got != on {
				t.Errorf("the model was asked for a stream: %t, want %t", got, on)
			}
			if !on {
				if len(pieces) > 0 {
					t.Errorf("there are deltas %q", pieces)
				}
				return
			}
			if got := strings.Join(pieces, ""); got != text || len(pieces) < 5 {
				t.Errorf("deltas are %q", pieces)
			}
		})
	}
}

// userMessages are the contents of the user's messages in the CLI's own order.
func userMessages(s *harness.TestSession) (contents []string, deliveries map[string]cliv1.UserMessageDelivery) {
	deliveries = map[string]cliv1.UserMessageDelivery{}
	for _, ev := range s.Recorded() {
		if m := ev.GetEvent().GetUserMessage(); m != nil {
			contents = append(contents, m.GetContent())
			deliveries[m.GetContent()] = m.GetDelivery()
		}
	}
	return contents, deliveries
}

func TestSessionSendEnqueueAndImmediate(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, `
rules:
  - when: {user: "first"}
    times: 1
    wait_for: go
    reply: [{text: "Answer one."}]
default: {reply: [{text: "You said: {{user}}"}]}`)
	s := r.Session(r.Options())
	s.Submit("first")
	if err := r.Model.WaitGate(r.Ctx, "go"); err != nil {
		t.Fatal(err)
	}
	s.Submit("queued")
	s.Submit("steering", copilot.Immediately())
	r.Model.Release("go")
	s.WaitFor("session.idle")
	contents, deliveries := userMessages(s)
	if want := []string{"first", "steering", "queued"}; !slices.Equal(contents, want) {
		t.Errorf("the CLI took the messages as %q, want %q", contents, want)
	}
	steering := cliv1.UserMessageDelivery_USER_MESSAGE_DELIVERY_QUEUED
	if r.Has(quirks.ReportsSteering) {
		steering = cliv1.UserMessageDelivery_USER_MESSAGE_DELIVERY_STEERING
	}
	if deliveries["first"] != cliv1.UserMessageDelivery_USER_MESSAGE_DELIVERY_IDLE ||
		deliveries["queued"] != cliv1.UserMessageDelivery_USER_MESSAGE_DELIVERY_QUEUED ||
		deliveries["steering"] != steering {
		t.Errorf("deliveries are %v", deliveries)
	}
	if n := count(harness.Types(s.Recorded()), "session.idle"); n != 1 {
		t.Errorf("three messages ended in %d session.idle, want 1", n)
	}
	requests := r.Model.ModelRequests()
	for i, want := range []string{"first", "steering", "queued"} {
		if i >= len(requests) || !strings.Contains(requests[i].UserText(), want) {
			t.Errorf("model request %d is not about %q", i+1, want)
		}
	}
}

func TestSessionIdempotentSend(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	s := r.Session(r.Options())
	once := copilot.WithRequestID(rand.Text())
	first, second := s.Submit("only once", once), s.Submit("only once", once)
	if first.GetMessageId() != second.GetMessageId() || first.GetMessageId() == "" {
		t.Errorf("message ids are %q and %q", first.GetMessageId(), second.GetMessageId())
	}
	if !proto.Equal(first.GetPosition(), second.GetPosition()) {
		t.Errorf("positions are %v and %v", first.GetPosition(), second.GetPosition())
	}
	s.Ask("another")
	if contents, _ := userMessages(s); !slices.Equal(contents, []string{"only once", "another"}) {
		t.Errorf("the CLI took the messages as %q", contents)
	}
	_, err := s.Send(r.Ctx, "something else", once)
	harness.WantError(t, err, codes.InvalidArgument, bridgev1.ErrorReason_ERROR_REASON_REQUEST_ID_REUSED)
}

func TestSessionRunOneShot(t *testing.T) {
	t.Parallel()
	tests := []struct {
		lifetime bridgev1.Lifetime
		stays    bool
	}{
		{bridgev1.Lifetime_LIFETIME_UNSPECIFIED, false},
		{bridgev1.Lifetime_LIFETIME_KEEP, true},
	}
	for _, tt := range tests {
		t.Run(tt.lifetime.String(), func(t *testing.T) {
			t.Parallel()
			r := harness.NewFixture(t, harness.Echo)
			stream, err := r.Client.Sessions().Run(r.Ctx, &bridgev1.RunRequest{
				Session: &bridgev1.RunRequest_Create{Create: &bridgev1.CreateSessionRequest{
					Config: r.Options().Config, Lifetime: tt.lifetime,
				}},
				Prompt: &bridgev1.Prompt{Text: "hello"},
			})
			if err != nil {
				t.Fatal(err)
			}
			first, err := stream.Recv()
			for err == nil && first.GetProgress() != nil {
				first, err = stream.Recv()
			}
			if err != nil || first.GetStarted().GetSessionId() == "" || first.GetStarted().GetMessageId() == "" {
				t.Fatalf("first frame is %v, %v", first, err)
			}
			id := first.GetStarted().GetSessionId()
			r.Own(id)
			var seen []string
			var outcome *bridgev1.TurnOutcome
			for {
				frame, err := stream.Recv()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if outcome != nil {
					t.Errorf("after the outcome comes %v", frame)
				}
				seen = append(seen, harness.Types(frame.GetStream().GetEvents().GetEvents())...)
				outcome = frame.GetOutcome()
			}
			harness.WantOrder(t, seen, "session.start", "user.message", "assistant.message", "session.idle")
			if outcome.GetStatus() != bridgev1.TurnStatus_TURN_STATUS_COMPLETED ||
				outcome.GetText() != "You said: hello" {
				t.Errorf("outcome is %v", outcome)
			}
			_, err = r.Client.Session(id).Get(r.Ctx)
			if tt.stays {
				if err != nil {
					t.Errorf("the session did not stay: %v", err)
				}
				return
			}
			harness.WantError(t, err, codes.NotFound, notFound)
			// Nothing of it is stored: neither here nor in the CLI's history.
			list, err := r.Client.Sessions().ListSessions(r.Ctx, &bridgev1.ListSessionsRequest{})
			if err != nil ||
				slices.ContainsFunc(list.GetSessions(),
					func(s *bridgev1.Session) bool { return s.GetSessionId() == id }) {
				t.Errorf("the session is still listed: %v, %v", list, err)
			}
			_, err = r.Client.Sessions().ResumeSession(r.Ctx, &bridgev1.ResumeSessionRequest{SessionId: id})
			harness.WantError(t, err, codes.NotFound, notFound)
		})
	}
}

func TestSessionRunTurn(t *testing.T) {
	t.Parallel()
	r := harness.NewFixture(t, harness.Echo)
	s := r.Session(r.Options())
	s.Ask("before")
	turn := s.Run(r.Ctx, "hello")
	var seen []string
	for ev, err := range turn.Events() {
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, ev.GetEvent().GetEventType())
	}
	out, err := turn.Outcome()
	if err != nil || out.Err() != nil || out.Text() != "You said: hello" {
		t.Fatalf("outcome is %v, %v", out, err)
	}
	if count(seen, "user.message") != 1 || count(seen, "session.idle") != 1 {
		t.Errorf("the turn's events are %q", seen)
	}
	if got := s.WaitAfter(out.Proto.GetMessagePosition(), "assistant.turn_end"); copilot.ComparePositions(got.GetPosition(),
		out.Proto.GetEndPosition()) >= 0 {
		t.Errorf("the turn ends at %v, before %v", out.Proto.GetEndPosition(), got.GetPosition())
	}
}
