package forward_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/server/forward"
	"github.com/copilot-grpc/copilot-grpc/server/rpc"
	"github.com/copilot-grpc/copilot-grpc/server/status"
)

// heartbeat is a frame of a session at a position.
func heartbeat(session string, seq uint64) *bridgev1.SubscribeResponse {
	return &bridgev1.SubscribeResponse{SessionId: session, ResumeAfter: &bridgev1.Position{Epoch: 1, Seq: seq},
		Frame: &bridgev1.SubscribeResponse_Heartbeat{Heartbeat: &bridgev1.Heartbeat{}}}
}

// encoded is a frame as the journal has it: in pieces.
func encoded(tb testing.TB, m proto.Message) frame.Frame {
	tb.Helper()
	wire, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return frame.Frame{Wire: [][]byte{wire[:1], wire[1:]}}
}

func TestSubscribe(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b")
	c.set("s", "b")
	large := heartbeat("s", 2)
	large.Frame = &bridgev1.SubscribeResponse_Events{Events: &bridgev1.EventBatch{Events: []*bridgev1.Event{
		{OriginalJson: proto.String(strings.Repeat("y", 3<<20))}}}}
	want := []*bridgev1.SubscribeResponse{heartbeat("s", 1), large, heartbeat("s", 3)}
	c.replicas["b"].backend.subscribe = func(
		_ context.Context, r *bridgev1.SubscribeRequest, emit frame.Sink,
	) error {
		if after := r.GetSessions()[0].GetAfter(); after.GetSeq() != 7 {
			t.Errorf("after %v", after)
		}
		for _, m := range want {
			if err := errors.Join(emit(encoded(t, m)), emit(frame.Frame{Message: m})); err != nil {
				return err
			}
		}
		return nil
	}
	stream, err := c.replicas["a"].events().Subscribe(t.Context(), &bridgev1.SubscribeRequest{
		Sessions: []*bridgev1.SessionCursor{{SessionId: "s", After: &bridgev1.Position{Epoch: 1, Seq: 7}}}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 * len(want) {
		if got, err := stream.Recv(); err != nil || !proto.Equal(got, want[i/2]) {
			t.Fatalf("frame %d: %v", i, err)
		}
	}
	if _, err := stream.Recv(); err != io.EOF {
		t.Errorf("the stream ends with %v", err)
	}
	if header, _ := stream.Header(); strings.Join(header.Get(forward.HeaderOwner), "") != "b" {
		t.Errorf("header %v", header)
	}
}

// TestLocalStreams serves streams of the replica's own sessions: their first message is received once.
func TestLocalStreams(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b")
	c.set("s", "a")
	c.replicas["a"].backend.run = func(_ context.Context, r *bridgev1.RunRequest, emit frame.Sink) error {
		return emit(frame.Frame{Message: heartbeat(r.GetSessionId()+r.GetPrompt().GetText(), 1)})
	}
	stream, err := c.replicas["a"].sessions().Run(t.Context(), &bridgev1.RunRequest{
		Session: &bridgev1.RunRequest_SessionId{SessionId: "s"}, Prompt: &bridgev1.Prompt{Text: "!"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := stream.Recv(); err != nil || got.GetStream().GetSessionId() != "s!" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestSendStream(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b", "c")
	c.set("s", "b")
	for _, r := range c.replicas {
		r.backend.sendStream = func(_ context.Context, first *bridgev1.SendRequest,
			next func() (*bridgev1.AttachmentChunk, error),
		) (*bridgev1.SendStreamResponse, error) {
			id := r.node + " " + first.GetPrompt().GetText()
			for {
				chunk, err := next()
				if err == io.EOF {
					return &bridgev1.SendStreamResponse{MessageId: id}, nil
				}
				if err != nil {
					return nil, err
				}
				id += "+" + string(chunk.GetData())
			}
		}
	}
	send := func() string {
		stream, err := c.replicas["a"].sessions().SendStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		first := &bridgev1.SendStreamRequest{Piece: &bridgev1.SendStreamRequest_Request{Request: &bridgev1.SendRequest{
			SessionId: "s", Prompt: &bridgev1.Prompt{Text: "x"}}}}
		if err := stream.Send(first); err != nil {
			t.Fatal(err)
		}
		for _, data := range []string{"1", "2"} {
			if err := stream.Send(&bridgev1.SendStreamRequest{Piece: &bridgev1.SendStreamRequest_Chunk{
				Chunk: &bridgev1.AttachmentChunk{Data: []byte(data)}}}); err != nil {
				t.Fatal(err)
			}
		}
		reply, err := stream.CloseAndRecv()
		if err != nil {
			t.Fatal(err)
		}
		return reply.GetMessageId()
	}
	if got := send(); got != "b x+1+2" {
		t.Errorf("%q", got)
	}
	c.set("s", "c") // a still believes in b, which refuses the call: nothing of it may be lost
	if got := send(); got != "c x+1+2" {
		t.Errorf("after the move: %q", got)
	}
}

// attachment is a participation of which a test sees all calls.
type attachment struct {
	node  string
	ended chan string

	emit   chan frame.Frame
	handle func(context.Context, *bridgev1.AttachRequest) error
	over   chan struct{}
}

func newAttachment(node string) *attachment {
	return &attachment{node: node, ended: make(chan string, 1), emit: make(chan frame.Frame, 8),
		over: make(chan struct{})}
}

func (a *attachment) Handle(ctx context.Context, r *bridgev1.AttachRequest) error {
	if a.handle != nil {
		return a.handle(ctx, r)
	}
	a.emit <- frame.Frame{Message: heartbeat(a.node+" "+r.GetCommand().GetRequestId(), 1)}
	return nil
}

func (a *attachment) Stream(ctx context.Context, emit frame.Sink) error {
	if err := emit(frame.Frame{Message: &bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Started{
		Started: &bridgev1.AttachStarted{ParticipantToken: "token"}}}}); err != nil {
		return err
	}
	for {
		select {
		case f := <-a.emit:
			if err := emit(f); err != nil {
				return err
			}
		case <-a.over:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (a *attachment) Leave() {
	a.ended <- "left"
	close(a.over)
}

func (a *attachment) Lost() { a.ended <- "lost" }

type attaching = grpc.BidiStreamingClient[bridgev1.AttachRequest, bridgev1.AttachResponse]

// attach opens a participation through a replica and receives its first frame.
func attach(ctx context.Context, t *testing.T, r *replica, session string) attaching {
	t.Helper()
	stream, err := bridgev1.NewCallbackServiceClient(r.Conn).Attach(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: &bridgev1.AttachStart{
		Session: &bridgev1.AttachStart_JoinSessionId{JoinSessionId: session}}}}); err != nil {
		t.Fatal(err)
	}
	if first, err := stream.Recv(); err != nil || first.GetStarted().GetParticipantToken() != "token" {
		t.Fatalf("first frame %v, %v", first, err)
	}
	return stream
}

// command is a later frame of a participant.
func command(id string) *bridgev1.AttachRequest {
	return &bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Command{Command: &bridgev1.AttachCommand{
		RequestId: id, Command: &bridgev1.AttachCommand_Send{Send: &bridgev1.Prompt{Text: "x"}}}}}
}

func TestAttach(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		do   func(attaching, context.CancelFunc) error
		want string
		code codes.Code
	}{
		"half-close": {func(s attaching, _ context.CancelFunc) error { return s.CloseSend() }, "left", codes.OK},
		"cancel": {func(_ attaching, cancel context.CancelFunc) error {
			cancel()
			return nil
		}, "lost", codes.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, nil, "a", "b")
			c.set("s", "b")
			at := newAttachment("b")
			c.replicas["b"].backend.attach = func(context.Context, *bridgev1.AttachStart) (rpc.Attachment, error) {
				return at, nil
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			stream := attach(ctx, t, c.replicas["a"], "s")
			for _, id := range []string{"one", "two"} {
				if err := stream.Send(command(id)); err != nil {
					t.Fatal(err)
				}
				if got, err := stream.Recv(); err != nil || got.GetStream().GetSessionId() != "b "+id {
					t.Errorf("%v, %v", got, err)
				}
			}
			if err := end.do(stream, cancel); err != nil {
				t.Fatal(err)
			}
			if got := <-at.ended; got != end.want {
				t.Errorf("the participant has %s, want %s", got, end.want)
			}
			_, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				err = nil
			}
			if grpcstatus.Code(err) != end.code {
				t.Errorf("the stream ends with %v", err)
			}
		})
	}
}

// TestWithdrawnParticipantLeaves takes a caller's rights at the entry replica: its participation does not wait for it.
func TestWithdrawnParticipantLeaves(t *testing.T) {
	t.Parallel()
	c := start(t, withPolicy(t, tenants), "b")
	without := strings.Replace(tenants, "{token: acme, role: participant}", "", 1)
	entry := c.join(t, "a", withPolicy(t, tenants))
	c.set("acme/s", "b")
	at := newAttachment("b")
	c.replicas["b"].backend.attach = func(context.Context, *bridgev1.AttachStart) (rpc.Attachment, error) {
		return at, nil
	}
	stream := attach(as(t.Context(), "acme"), t, entry, "s")
	entry.setPolicy(t, without)
	if got := <-at.ended; got != "left" {
		t.Errorf("the participant has %s", got)
	}
	if _, err := stream.Recv(); grpcstatus.Code(err) != codes.PermissionDenied {
		t.Errorf("the stream ends with %v", err)
	}
}

// TestGuestFrames checks the later frames of a guest where the session is, although the entry replica does not decode
// them.
func TestGuestFrames(t *testing.T) {
	t.Parallel()
	c := start(t, withPolicy(t, tenants), "a", "b")
	c.set("rival/s", "b")
	at := newAttachment("b")
	c.replicas["b"].backend.attach = func(ctx context.Context, _ *bridgev1.AttachStart) (rpc.Attachment, error) {
		return at, caller.CheckGuest(ctx, "rival")
	}
	stream := attach(as(t.Context(), "boxed"), t, c.replicas["a"], "rival/s")
	if err := stream.Send(command("one")); err != nil {
		t.Fatal(err)
	}
	if got, err := stream.Recv(); err != nil || got.GetStream().GetSessionId() != "b one" {
		t.Fatalf("%v, %v", got, err)
	}
	bad := command("two")
	bad.GetCommand().GetSend().Attachments = []*cliv1.Attachment{{Variant: &cliv1.Attachment_File{
		File: &cliv1.AttachmentFile{Path: "/etc/passwd"}}}}
	if err := stream.Send(bad); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); grpcstatus.Code(err) != codes.PermissionDenied {
		t.Errorf("a file of the owner's machine: %v", err)
	}
}

func TestStreamOfAMovedSession(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b", "c")
	c.set("s", "b")
	entry := c.replicas["a"]
	entry.servedBy(t, "s")
	c.set("s", "c")
	for _, r := range c.replicas {
		r.backend.attach = func(context.Context, *bridgev1.AttachStart) (rpc.Attachment, error) {
			return newAttachment(r.node), nil
		}
	}
	stream := attach(t.Context(), t, entry, "s")
	if err := errors.Join(stream.Send(command("one")), stream.CloseSend()); err != nil {
		t.Fatal(err)
	}
	if got, err := stream.Recv(); err != nil || got.GetStream().GetSessionId() != "c one" {
		t.Errorf("%v, %v", got, err)
	}
}

// TestStreamsEndTyped ends the owner, and the entry replica, in the middle of a stream.
func TestStreamsEndTyped(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		end    func(*cluster)
		reason string
	}{
		"the owner dies":   {func(c *cluster) { _ = c.replicas["b"].Server.Close() }, "SESSION_UNAVAILABLE"},
		"the entry drains": {func(c *cluster) { go func() { _ = c.replicas["a"].Stop() }() }, "DRAINING"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := start(t, nil, "a", "b")
			c.set("s", "b")
			ended := make(chan struct{})
			c.replicas["b"].backend.subscribe = func(
				ctx context.Context, _ *bridgev1.SubscribeRequest, emit frame.Sink,
			) error {
				defer close(ended)
				if err := emit(frame.Frame{Message: heartbeat("s", 1)}); err != nil {
					return err
				}
				<-ctx.Done()
				return ctx.Err()
			}
			stream, err := c.replicas["a"].events().Subscribe(t.Context(), &bridgev1.SubscribeRequest{
				Sessions: []*bridgev1.SessionCursor{{SessionId: "s"}}})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Recv(); err != nil {
				t.Fatal(err)
			}
			tc.end(c)
			_, err = stream.Recv()
			if st := grpcstatus.Convert(err); st.Code() != codes.Unavailable || status.Reason(st) != tc.reason {
				t.Errorf("status %v, reason %q, want %q", st, status.Reason(st), tc.reason)
			}
			<-ended
		})
	}
}

// TestSlowReader counts what the owner can send while the client reads nothing: the windows, and no more.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b")
	c.set("s", "b")
	const size, bound = 64 << 10, 4 << 20
	sent := make(chan int, 1<<10)
	blocked := make(chan struct{})
	frameOf := heartbeat("s", 1)
	frameOf.Frame = &bridgev1.SubscribeResponse_Events{Events: &bridgev1.EventBatch{Events: []*bridgev1.Event{
		{OriginalJson: proto.String(strings.Repeat("y", size))}}}}
	c.replicas["b"].backend.subscribe = func(_ context.Context, _ *bridgev1.SubscribeRequest, emit frame.Sink) error {
		for n := range 1 << 10 { // 64 MiB in all
			stop := time.AfterFunc(time.Second, func() { close(blocked) })
			err := emit(frame.Frame{Message: frameOf})
			if !stop.Stop() {
				return err // it was blocked
			}
			if err != nil {
				return err
			}
			sent <- n
		}
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := c.replicas["a"].events().Subscribe(ctx, &bridgev1.SubscribeRequest{
		Sessions: []*bridgev1.SessionCursor{{SessionId: "s"}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil {
		t.Fatal(err)
	}
	<-blocked
	if got := len(sent) * size; got > bound || got == 0 {
		t.Errorf("the owner sent %d bytes to a client that reads nothing, want at most %d", got, bound)
	}
}

func TestErrorsOfTheOwnerEndTheStream(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b")
	c.set("s", "b")
	c.replicas["b"].backend.attach = func(context.Context, *bridgev1.AttachStart) (rpc.Attachment, error) {
		return (*attachment)(nil), fault.New(fault.ToolNameConflict, "taken").WithField("start.tools")
	}
	stream, err := bridgev1.NewCallbackServiceClient(c.replicas["a"].Conn).Attach(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: &bridgev1.AttachStart{
		Session: &bridgev1.AttachStart_JoinSessionId{JoinSessionId: "s"}}}}); err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	trailer := stream.Trailer()
	if st := grpcstatus.Convert(err); st.Code() != codes.AlreadyExists || status.Field(st) != "start.tools" ||
		strings.Join(trailer.Get(status.TrailerReason), "|") != "TOOL_NAME_CONFLICT" {
		t.Errorf("status %v, trailer %v", st, trailer)
	}
}
