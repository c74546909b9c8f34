package copilot_test

import (
	"cmp"
	"context"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

func TestMain(m *testing.M) {
	if os.Getenv(privateServerEnv) != "" {
		servePrivately()
		return
	}
	goleak.VerifyTestMain(m)
}

// patience bounds every wait of a test for the other side.
const patience = 10 * time.Second

// quickly reconnects without making tests slow.
var quickly = copilot.WithReconnect(copilot.ReconnectPolicy{
	MinBackoff: time.Millisecond, MaxBackoff: 5 * time.Millisecond, GiveUpAfter: patience,
})

// fake is a server whose streams the test itself plays, and whose unary calls are
// functions that it sets.
type fake struct {
	bridgev1.UnimplementedSessionServiceServer
	bridgev1.UnimplementedEventServiceServer
	bridgev1.UnimplementedCallbackServiceServer
	bridgev1.UnimplementedRuntimeServiceServer

	// over is closed at the end of the test, and ends the participations that are left.
	over     chan struct{}
	attaches chan *attach
	subs     chan *stream[bridgev1.SubscribeRequest, bridgev1.SubscribeResponse]
	runs     chan *stream[bridgev1.RunRequest, bridgev1.RunResponse]
	watches  chan *stream[bridgev1.WatchSessionsRequest, bridgev1.WatchSessionsResponse]
	inboxes  chan *stream[bridgev1.WatchPendingRequest, bridgev1.WatchPendingResponse]

	// unary gets the requests of the calls that have no function here.
	unary chan proto.Message

	info        func(context.Context) error
	version     string // default: test
	send        func(context.Context, *bridgev1.SendRequest) (*bridgev1.SendResponse, error)
	sendAndWait func(context.Context, *bridgev1.SendAndWaitRequest) (*bridgev1.SendAndWaitResponse, error)
	listEvents  func(*bridgev1.ListEventsRequest) (*bridgev1.ListEventsResponse, error)
	sendStream  func(grpc.ClientStreamingServer[bridgev1.SendStreamRequest, bridgev1.SendStreamResponse]) error
	resolve     func(*bridgev1.ResolveRequest) (*bridgev1.ResolveResponse, error)
	export      func(*bridgev1.ExportSessionRequest, grpc.ServerStreamingServer[bridgev1.ExportSessionResponse]) error
	importing   func(grpc.ClientStreamingServer[bridgev1.ImportSessionRequest, bridgev1.ImportSessionResponse]) error
}

func (f *fake) GetServerInfo(
	ctx context.Context, _ *bridgev1.GetServerInfoRequest,
) (*bridgev1.GetServerInfoResponse, error) {
	if f.info != nil {
		if err := f.info(ctx); err != nil {
			return nil, err
		}
	}
	return &bridgev1.GetServerInfoResponse{Version: cmp.Or(f.version, "test")}, nil
}

func (f *fake) Send(ctx context.Context, req *bridgev1.SendRequest) (*bridgev1.SendResponse, error) {
	return f.send(ctx, req)
}

func (f *fake) ExportSession(
	req *bridgev1.ExportSessionRequest, out grpc.ServerStreamingServer[bridgev1.ExportSessionResponse],
) error {
	return f.export(req, out)
}

func (f *fake) ImportSession(
	in grpc.ClientStreamingServer[bridgev1.ImportSessionRequest, bridgev1.ImportSessionResponse],
) error {
	return f.importing(in)
}

func (f *fake) SendStream(
	in grpc.ClientStreamingServer[bridgev1.SendStreamRequest, bridgev1.SendStreamResponse],
) error {
	return f.sendStream(in)
}

func (f *fake) SendAndWait(
	ctx context.Context, req *bridgev1.SendAndWaitRequest,
) (*bridgev1.SendAndWaitResponse, error) {
	return f.sendAndWait(ctx, req)
}

func (f *fake) ListEvents(
	_ context.Context, req *bridgev1.ListEventsRequest,
) (*bridgev1.ListEventsResponse, error) {
	return f.listEvents(req)
}

func (f *fake) Resolve(_ context.Context, req *bridgev1.ResolveRequest) (*bridgev1.ResolveResponse, error) {
	return f.resolve(req)
}

func (f *fake) ReadEvent(
	_ *bridgev1.ReadEventRequest, out grpc.ServerStreamingServer[bridgev1.ReadEventResponse],
) error {
	for _, piece := range []string{`{"type":`, `"x"}`} {
		if err := out.Send(&bridgev1.ReadEventResponse{JsonChunk: []byte(piece)}); err != nil {
			return err
		}
	}
	return nil
}

// attach is an Attach stream, in the hands of the test.
type attach struct {
	t     *testing.T
	start *bridgev1.AttachStart
	out   grpc.BidiStreamingServer[bridgev1.AttachRequest, bridgev1.AttachResponse]
	in    chan *bridgev1.AttachRequest // closed when the client is gone or has half-closed
	end   chan error
}

func (f *fake) Attach(out grpc.BidiStreamingServer[bridgev1.AttachRequest, bridgev1.AttachResponse]) error {
	first, err := out.Recv()
	if err != nil {
		return err
	}
	a := &attach{
		start: first.GetStart(), out: out,
		in: make(chan *bridgev1.AttachRequest, 64), end: make(chan error, 1),
	}
	select {
	case f.attaches <- a:
	case <-f.over:
		return failure(codes.Unavailable, "", "the test is over")
	case <-out.Context().Done():
		return out.Context().Err()
	}
	go func() {
		defer close(a.in)
		for {
			req, err := out.Recv()
			if err != nil {
				return
			}
			a.in <- req
		}
	}()
	select {
	case err := <-a.end:
		return err
	case <-f.over:
		return failure(codes.Unavailable, "", "the test is over")
	case <-out.Context().Done():
		return out.Context().Err()
	}
}

func (f *fake) Leave(context.Context, *bridgev1.LeaveRequest) (*bridgev1.LeaveResponse, error) {
	return &bridgev1.LeaveResponse{Left: true}, nil
}

// stream is a server stream, in the hands of the test.
type stream[Req, Resp any] struct {
	t   *testing.T
	req *Req
	out grpc.ServerStreamingServer[Resp]
	end chan error
}

func (s *stream[Req, Resp]) send(frames ...*Resp) {
	s.t.Helper()
	for _, f := range frames {
		if err := s.out.Send(f); err != nil {
			s.t.Errorf("send: %v", err)
		}
	}
}

// serveStream hands a server stream to the test and waits until it, or the client, is
// done with it.
func serveStream[Req, Resp any](
	to chan *stream[Req, Resp], req *Req, out grpc.ServerStreamingServer[Resp],
) error {
	s := &stream[Req, Resp]{req: req, out: out, end: make(chan error, 1)}
	select {
	case to <- s:
	case <-out.Context().Done():
		return out.Context().Err()
	}
	select {
	case err := <-s.end:
		return err
	case <-out.Context().Done():
		return out.Context().Err()
	}
}

func (f *fake) Subscribe(
	req *bridgev1.SubscribeRequest, out grpc.ServerStreamingServer[bridgev1.SubscribeResponse],
) error {
	return serveStream(f.subs, req, out)
}

func (f *fake) WatchPending(
	req *bridgev1.WatchPendingRequest, out grpc.ServerStreamingServer[bridgev1.WatchPendingResponse],
) error {
	return serveStream(f.inboxes, req, out)
}

func (f *fake) WatchSessions(
	req *bridgev1.WatchSessionsRequest, out grpc.ServerStreamingServer[bridgev1.WatchSessionsResponse],
) error {
	return serveStream(f.watches, req, out)
}

func (f *fake) Run(req *bridgev1.RunRequest, out grpc.ServerStreamingServer[bridgev1.RunResponse]) error {
	return serveStream(f.runs, req, out)
}

// newFake starts a server and a client of it; both end with the test.
func newFake(t *testing.T, opts ...copilot.Option) (*fake, *copilot.Client) {
	t.Helper()
	f := &fake{
		over:     make(chan struct{}),
		attaches: make(chan *attach),
		unary:    make(chan proto.Message, 16),
		subs:     make(chan *stream[bridgev1.SubscribeRequest, bridgev1.SubscribeResponse]),
		runs:     make(chan *stream[bridgev1.RunRequest, bridgev1.RunResponse]),
		watches:  make(chan *stream[bridgev1.WatchSessionsRequest, bridgev1.WatchSessionsResponse]),
		inboxes:  make(chan *stream[bridgev1.WatchPendingRequest, bridgev1.WatchPendingResponse]),
	}
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	bridgev1.RegisterSessionServiceServer(server, f)
	bridgev1.RegisterEventServiceServer(server, f)
	bridgev1.RegisterCallbackServiceServer(server, f)
	bridgev1.RegisterRuntimeServiceServer(server, f)
	serving := make(chan error, 1)
	go func() { serving <- server.Serve(listener) }()

	opts = append([]copilot.Option{
		quickly,
		copilot.WithInsecure(),
		copilot.WithGRPC(grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return listener.DialContext(ctx)
		})),
	}, opts...)
	c, err := copilot.Dial(testContext(t), "passthrough:///fake", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(f.over) // first: sessions that are open need not wait for a goodbye
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		server.Stop()
		if err := <-serving; err != nil {
			t.Error(err)
		}
	})
	return f, c
}

func testContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// receive waits for something on a channel.
func receive[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v, ok := <-c:
		if !ok {
			t.Fatalf("no %s: closed", what)
		}
		return v
	case <-time.After(patience):
		t.Fatalf("no %s", what)
	}
	panic("unreachable")
}

// next waits for the next stream of a kind.
func next[Req, Resp any](t *testing.T, c <-chan *stream[Req, Resp]) *stream[Req, Resp] {
	t.Helper()
	s := receive(t, c, "stream")
	s.t = t
	return s
}

// attached waits for an Attach stream and lets it begin as participant "p1" with token
// "secret" in session "s1".
func (f *fake) attached(t *testing.T, pending ...*bridgev1.Callback) *attach {
	t.Helper()
	a := receive(t, f.attaches, "attach stream")
	a.t = t
	a.begin(pending...)
	return a
}

// begin lets the stream begin as attached says.
func (a *attach) begin(pending ...*bridgev1.Callback) {
	a.t.Helper()
	session := &bridgev1.Session{SessionId: "s1", Position: pos(1, 3)}
	a.send(&bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Started{Started: &bridgev1.AttachStarted{
		ParticipantId: "p1", ParticipantToken: "secret", Session: session,
	}}})
	started := &bridgev1.SubscriptionStarted{Position: pos(1, 3), Session: session, PendingCallbacks: pending}
	a.tell(&bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_Started{Started: started}})
}

func (a *attach) send(frame *bridgev1.AttachResponse) {
	a.t.Helper()
	if err := a.out.Send(frame); err != nil {
		a.t.Errorf("send: %v", err)
	}
}

// tell sends a frame about the session.
func (a *attach) tell(frame *bridgev1.SubscribeResponse) {
	a.t.Helper()
	frame.SessionId = "s1"
	a.send(&bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Stream{Stream: frame}})
}

// ask offers a callback to the participant.
func (a *attach) ask(cb *bridgev1.Callback) {
	a.t.Helper()
	a.tell(&bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_CallbackRequested{
		CallbackRequested: &bridgev1.CallbackRequested{Callback: cb, Offered: true},
	}})
}

// resolved says that a callback is over.
func (a *attach) resolved(id string, outcome bridgev1.CallbackOutcome) {
	a.t.Helper()
	a.tell(&bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_CallbackResolved{
		CallbackResolved: &bridgev1.CallbackResolved{CallbackId: id, Outcome: outcome},
	}})
}

// answer waits for an answer.
func (a *attach) answer() *bridgev1.CallbackAnswer {
	a.t.Helper()
	req := receive(a.t, a.in, "answer")
	if req.GetAnswer() == nil {
		a.t.Fatalf("got %v, want an answer", req)
	}
	return req.GetAnswer()
}

// done accepts an answer.
func (a *attach) done(id string) {
	a.t.Helper()
	a.send(&bridgev1.AttachResponse{Frame: &bridgev1.AttachResponse_Done{
		Done: &bridgev1.AttachDone{Subject: &bridgev1.AttachDone_CallbackId{CallbackId: id}, Position: pos(1, 9)},
	}})
}

// goodbye waits for the participant to leave, and lets it go.
func (a *attach) goodbye() *bridgev1.AttachLeave {
	a.t.Helper()
	leave := receive(a.t, a.in, "leave frame").GetLeave()
	if leave == nil {
		a.t.Fatal("got another frame, want leave")
	}
	a.tell(&bridgev1.SubscribeResponse{Frame: &bridgev1.SubscribeResponse_Closed{
		Closed: &bridgev1.SubscriptionClosed{Reason: bridgev1.CloseReason_CLOSE_REASON_LEFT},
	}})
	a.end <- nil
	return leave
}

// failure is a status as the server makes it.
func failure(code codes.Code, reason, text string, details ...protoadapt.MessageV1) error {
	st := status.New(code, text)
	if reason != "" {
		details = append(details, &errdetails.ErrorInfo{
			Domain: "copilot-grpc", Reason: reason, Metadata: map[string]string{"session_id": "s1"},
		})
	}
	st, err := st.WithDetails(details...)
	if err != nil {
		panic(err)
	}
	return st.Err()
}

func pos(epoch, seq uint64) *bridgev1.Position { return &bridgev1.Position{Epoch: epoch, Seq: seq} }
