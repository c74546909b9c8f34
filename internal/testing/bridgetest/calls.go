package bridgetest

import (
	"context"
	"crypto/sha256"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// Create creates a session with an id.
func (b *Bridge) Create(id string, change ...func(*bridgev1.CreateSessionRequest)) {
	b.T.Helper()
	q := &bridgev1.CreateSessionRequest{SessionId: id, Config: &cliv1.SessionConfig{Streaming: proto.Bool(true)}}
	for _, c := range change {
		c(q)
	}
	if _, err := b.Sessions.CreateSession(b.T.Context(), q); err != nil {
		b.T.Fatal(err)
	}
}

// WithTool gives a session the tool of Hanging, which callers of Resolve answer for.
func WithTool(q *bridgev1.CreateSessionRequest) {
	q.Config.Tools = []*cliv1.ToolDefinition{{Name: "work", SkipPermission: proto.Bool(true)}}
}

// WithLabels gives a session labels.
func WithLabels(labels map[string]string) func(*bridgev1.CreateSessionRequest) {
	return func(q *bridgev1.CreateSessionRequest) { q.Labels = labels }
}

// Disconnect ends the use of a session.
func (b *Bridge) Disconnect(id string) {
	b.T.Helper()
	_, err := b.Sessions.DisconnectSession(b.T.Context(), &bridgev1.DisconnectSessionRequest{SessionId: id})
	if err != nil {
		b.T.Fatal(err)
	}
}

// Ask sends a prompt and waits for the end of its turn.
func (b *Bridge) Ask(id, text string) *bridgev1.TurnOutcome {
	b.T.Helper()
	q := &bridgev1.SendAndWaitRequest{SessionId: id, Prompt: &bridgev1.Prompt{Text: text}}
	out, err := b.Turns.SendAndWait(b.T.Context(), q)
	if err != nil {
		b.T.Fatal(err)
	}
	return out.GetOutcome()
}

// Begin sends a prompt and waits until it is in the conversation.
func (b *Bridge) Begin(id, text string) {
	b.T.Helper()
	b.Send(&bridgev1.SendRequest{SessionId: id, Prompt: &bridgev1.Prompt{Text: text}})
	Eventually(b.T, "the prompt in the conversation", func() bool { return slices.Contains(b.Conversation(id), text) })
}

// Send sends a prompt.
func (b *Bridge) Send(q *bridgev1.SendRequest) *bridgev1.SendResponse {
	b.T.Helper()
	out, err := b.Turns.Send(b.T.Context(), q)
	if err != nil {
		b.T.Fatal(err)
	}
	return out
}

// Repeatable is a prompt whose request id is its text, so that it can be sent again.
func Repeatable(id, text string, change ...func(*bridgev1.Prompt)) *bridgev1.SendRequest {
	p := &bridgev1.Prompt{Text: text}
	for _, c := range change {
		c(p)
	}
	return &bridgev1.SendRequest{SessionId: id, RequestId: text, Prompt: p}
}

// Conversation returns the user's messages in a session's journal, in order.
func (b *Bridge) Conversation(id string) (out []string) {
	b.T.Helper()
	s := b.Subscribe(&bridgev1.SubscribeRequest{Sessions: Cursors(id)})
	defer s.Stop()
	s.Frame("the end of the replay", func(f *bridgev1.SubscribeResponse) bool {
		for _, e := range f.GetEvents().GetEvents() {
			if m := e.GetEvent().GetUserMessage(); m != nil {
				out = append(out, m.GetContent())
			}
		}
		return f.GetCaughtUp() != nil
	})
	return out
}

// AwaitOutbox waits until the data directory has that the turns of all of a session's prompts have ended. Otherwise a
// Restart would find a prompt, and load the session.
func (b *Bridge) AwaitOutbox(id string) {
	b.T.Helper()
	Eventually(b.T, "the note that the prompts' turns have ended", func() bool {
		box, err := outbox.Open(b.Directory.Outbox(id))
		return err == nil && box.Empty()
	})
}

// Remember gives a session to another server and takes it back with a request that that server has not settled, as
// after its crash. The bridge must have a data directory, and the session must be about to rest.
func (b *Bridge) Remember(session string, key backend.Key, request proto.Message, since []byte) {
	b.T.Helper()
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	if err != nil {
		b.T.Fatal(err)
	}
	sum := sha256.Sum256(text)
	r := backend.Request{Key: key, Sum: sum[:], Expires: time.Now().Add(time.Hour), Since: since}
	Eventually(b.T, "the session's rest", func() bool {
		left, err := b.Store().HandOver(b.T.Context(), session, false, func() error { return nil })
		if err != nil {
			b.T.Fatal(err)
		}
		return left
	})
	_, err = b.Load(b.T.Context(), session, func() ([]backend.Request, error) { return []backend.Request{r}, nil })
	if err != nil {
		b.T.Fatal(err)
	}
}

// Abandon makes a call whose caller cancels it when the CLI has received a method, and returns the call's error.
func (b *Bridge) Abandon(method string, call func(ctx context.Context) error) error {
	b.T.Helper()
	before := Received(b.FakeCLI(), method)
	ctx, cancel := context.WithCancel(b.T.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- call(ctx) }()
	Eventually(b.T, method, func() bool { return Received(b.FakeCLI(), method) > before })
	cancel()
	return <-ended
}

// Received counts the calls of a method that a CLI has received.
func Received(cli *fakecli.CLI, method string) (n int) {
	for _, e := range cli.Log() {
		if e.Kind == fakecli.EntryReceived && e.Type == method {
			n++
		}
	}
	return n
}
