package rpc_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/rpc"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
	"github.com/copilot-grpc/copilot-grpc/server/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// attachment is one whose behaviour a test scripts, and that tells what was done to it.
type attachment struct {
	handle func(ctx context.Context, req *bridgev1.AttachRequest) error
	stream func(ctx context.Context, emit frame.Sink) error

	calls chan string   // what was called
	left  chan struct{} // closed by Leave
}

func newAttachment() *attachment {
	a := &attachment{calls: make(chan string, 100), left: make(chan struct{})}
	a.handle = func(context.Context, *bridgev1.AttachRequest) error { return nil }
	a.stream = func(ctx context.Context, emit frame.Sink) error {
		started := &bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Started{Started: &bridgev1.AttachStarted{ParticipantId: "p1"}}}
		if err := emit(frame.Frame{Message: started}); err != nil {
			return err
		}
		return a.wait(ctx)
	}
	return a
}

// wait returns when the participation is over.
func (a *attachment) wait(ctx context.Context) error {
	select {
	case <-a.left:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *attachment) Handle(ctx context.Context, req *bridgev1.AttachRequest) error {
	a.calls <- "handle " + req.GetCommand().GetCommandId()
	return a.handle(ctx, req)
}

func (a *attachment) Stream(ctx context.Context, emit frame.Sink) error {
	defer func() { a.calls <- "streamed" }()
	return a.stream(ctx, emit)
}

func (a *attachment) Leave() {
	a.calls <- "leave"
	close(a.left)
}

func (a *attachment) Lost() { a.calls <- "lost" }

// expect waits for the calls, in this order.
func (a *attachment) expect(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		if got := <-a.calls; got != w {
			t.Fatalf("call %q, want %q", got, w)
		}
	}
}

// done fails if anything was called after what was expected. The server has stopped, so
// that nothing can follow.
func (a *attachment) done(t *testing.T, r *servertest.Running) {
	t.Helper()
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	select {
	case got := <-a.calls:
		t.Errorf("further call %q", got)
	default:
	}
}

// backend hands out one attachment.
type backend struct {
	attachment *attachment
	err        error
}

func (b *backend) Attach(_ context.Context, start *bridgev1.AttachStart) (rpc.Attachment, error) {
	if start.GetName() != "me" {
		return nil, errors.New("the start is not the caller's")
	}
	return b.attachment, b.err
}

func (*backend) Leave(context.Context, *bridgev1.LeaveRequest) (*bridgev1.LeaveResponse, error) {
	return &bridgev1.LeaveResponse{}, nil
}

func serve(
	t *testing.T, b *backend,
) (*servertest.Running, bridgev1.CallbackService_AttachClient, context.CancelFunc) {
	t.Helper()
	r := servertest.Start(t, server.Config{}, rpc.NewCallback(nil, b))
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := bridgev1.NewCallbackServiceClient(r.Conn).Attach(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return r, stream, cancel
}

// attach opens a participation and takes its first frame.
func attach(
	t *testing.T, a *attachment,
) (*servertest.Running, bridgev1.CallbackService_AttachClient, context.CancelFunc) {
	t.Helper()
	r, stream, cancel := serve(t, &backend{attachment: a})
	send(t, stream, start())
	if m, err := stream.Recv(); err != nil || m.GetStarted().GetParticipantId() != "p1" {
		t.Fatalf("first frame %v, %v", m, err)
	}
	return r, stream, cancel
}

func send(t *testing.T, stream grpc.ClientStream, frames ...*bridgev1.AttachRequest) {
	t.Helper()
	for _, f := range frames {
		if err := stream.SendMsg(f); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
}

func start() *bridgev1.AttachRequest {
	return &bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: &bridgev1.AttachStart{Name: "me"}}}
}

func command(id string) *bridgev1.AttachRequest {
	return &bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Command{Command: &bridgev1.AttachCommand{CommandId: id}}}
}

func ends(t *testing.T, stream bridgev1.CallbackService_AttachClient, code codes.Code, reason string) {
	t.Helper()
	for {
		_, err := stream.Recv()
		if err == nil {
			continue
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		if st := grpcstatus.Convert(err); st.Code() != code || status.Reason(st) != reason {
			t.Errorf("the stream ends with %v, reason %q; want %v, %q", st, status.Reason(st), code, reason)
		}
		return
	}
}

func TestFramesInOrderThenHalfClose(t *testing.T) {
	t.Parallel()
	a := newAttachment()
	r, stream, _ := attach(t, a)
	send(t, stream, command("1"), command("2"), command("3"))
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	ends(t, stream, codes.OK, "")
	a.expect(t, "handle 1", "handle 2", "handle 3", "leave", "streamed")
	a.done(t, r)
}

func TestCallerGone(t *testing.T) {
	t.Parallel()
	a := newAttachment()
	r, _, cancel := attach(t, a)
	cancel()
	got := []string{<-a.calls, <-a.calls}
	if g := strings.Join(got, ","); g != "lost,streamed" && g != "streamed,lost" {
		t.Errorf("calls %q", got)
	}
	a.done(t, r)
}

// The backend ends the participation of a silent caller: the handler returns and reports no loss.
func TestParticipationOver(t *testing.T) {
	t.Parallel()
	a := newAttachment()
	a.stream = func(_ context.Context, emit frame.Sink) error {
		closed := &bridgev1.SubscribeResponse_Closed{Closed: new(bridgev1.SubscriptionClosed)}
		return emit(frame.Frame{Message: &bridgev1.SubscribeResponse{Frame: closed}})
	}
	r, stream, _ := serve(t, &backend{attachment: a})
	send(t, stream, start())
	if m, err := stream.Recv(); err != nil || m.GetStream().GetClosed() == nil {
		t.Fatalf("frame %v, %v", m, err)
	}
	ends(t, stream, codes.OK, "")
	a.expect(t, "streamed")
	a.done(t, r)
}

// A frame that ends the participation may be under way when Stream returns: the handler
// waits for it, and its late failure is no loss.
func TestHandlerWaitsForTheFrameUnderWay(t *testing.T) {
	t.Parallel()
	a := newAttachment()
	var mu sync.Mutex
	returned := false
	a.handle = func(ctx context.Context, _ *bridgev1.AttachRequest) error {
		close(a.left)
		<-ctx.Done() // Stream has returned
		mu.Lock()
		defer mu.Unlock()
		returned = true
		return ctx.Err()
	}
	r, stream, _ := attach(t, a)
	send(t, stream, command("1"), command("2"))
	ends(t, stream, codes.OK, "")
	mu.Lock()
	defer mu.Unlock()
	if !returned {
		t.Error("the call ended before Handle returned")
	}
	a.expect(t, "handle 1", "streamed")
	a.done(t, r)
}

func TestStreamFails(t *testing.T) {
	t.Parallel()
	a := newAttachment()
	a.stream = func(context.Context, frame.Sink) error {
		return fault.New(fault.ParticipantReplaced, "another stream took over")
	}
	r, stream, _ := serve(t, &backend{attachment: a})
	send(t, stream, start())
	ends(t, stream, codes.Aborted, "PARTICIPANT_REPLACED")
	a.expect(t, "streamed", "lost")
	a.done(t, r)
}

func TestHandleFails(t *testing.T) {
	t.Parallel()
	for name, stream := range map[string]func(*attachment) func(context.Context, frame.Sink) error{
		"stream returns the context's error": func(a *attachment) func(context.Context, frame.Sink) error { return a.stream },
		"stream returns nil": func(a *attachment) func(context.Context, frame.Sink) error {
			inner := a.stream
			return func(ctx context.Context, emit frame.Sink) error {
				_ = inner(ctx, emit)
				return nil
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAttachment()
			a.stream = stream(a)
			a.handle = func(context.Context, *bridgev1.AttachRequest) error {
				return fault.New(fault.LimitExceeded, "too many frames")
			}
			r, stream, _ := attach(t, a)
			send(t, stream, command("1"))
			ends(t, stream, codes.ResourceExhausted, "LIMIT_EXCEEDED")
			a.expect(t, "handle 1")
			if g := <-a.calls + "," + <-a.calls; g != "lost,streamed" && g != "streamed,lost" {
				t.Errorf("calls %q", g)
			}
			a.done(t, r)
		})
	}
}

func TestFramesOutOfPlace(t *testing.T) {
	t.Parallel()
	t.Run("no frame", func(t *testing.T) {
		t.Parallel()
		_, stream, _ := serve(t, &backend{})
		_ = stream.CloseSend()
		ends(t, stream, codes.FailedPrecondition, "FRAME_UNEXPECTED")
	})
	t.Run("command first", func(t *testing.T) {
		t.Parallel()
		_, stream, _ := serve(t, &backend{})
		send(t, stream, command("1"))
		ends(t, stream, codes.FailedPrecondition, "FRAME_UNEXPECTED")
	})
	for name, f := range map[string]*bridgev1.AttachRequest{"second start": start(), "empty frame": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newAttachment()
			r, stream, _ := attach(t, a)
			send(t, stream, f)
			ends(t, stream, codes.FailedPrecondition, "FRAME_UNEXPECTED")
			if g := <-a.calls + "," + <-a.calls; g != "lost,streamed" && g != "streamed,lost" {
				t.Errorf("calls %q", g)
			}
			a.done(t, r)
		})
	}
}

func TestBackendRefuses(t *testing.T) {
	t.Parallel()
	_, stream, _ := serve(t, &backend{err: fault.New(fault.SessionNotFound, "Session not found: s1")})
	send(t, stream, start())
	ends(t, stream, codes.NotFound, "SESSION_NOT_FOUND")
}

// A panic costs the call, on whichever goroutine it is.
func TestPanics(t *testing.T) {
	t.Parallel()
	t.Run("handle", func(t *testing.T) {
		t.Parallel()
		a := newAttachment()
		a.handle = func(context.Context, *bridgev1.AttachRequest) error { panic("secret of handle") }
		r, stream, _ := attach(t, a)
		send(t, stream, command("1"))
		ends(t, stream, codes.Internal, "INTERNAL")
		a.expect(t, "handle 1", "streamed", "lost")
		a.done(t, r)
	})
	t.Run("stream", func(t *testing.T) {
		t.Parallel()
		a := newAttachment()
		a.stream = func(context.Context, frame.Sink) error { panic("secret of stream") }
		r, stream, _ := serve(t, &backend{attachment: a})
		send(t, stream, start())
		ends(t, stream, codes.Internal, "INTERNAL")
		a.expect(t, "streamed", "lost")
		a.done(t, r)
	})
}
