package copilototel_test

import (
	"context"
	"net"
	"testing"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/clients/go/copilototel"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

const callbackTrace = "0af7651916cd43dd8448eb211c80319c"

// server asks for one tool call, in a trace of its own, and takes one prompt.
type server struct {
	bridgev1.UnimplementedRuntimeServiceServer
	bridgev1.UnimplementedSessionServiceServer
	bridgev1.UnimplementedCallbackServiceServer
	prompt chan *bridgev1.Prompt
}

func (*server) GetServerInfo(
	context.Context, *bridgev1.GetServerInfoRequest,
) (*bridgev1.GetServerInfoResponse, error) {
	return &bridgev1.GetServerInfoResponse{Version: "dev"}, nil
}

func (s *server) Send(_ context.Context, req *bridgev1.SendRequest) (*bridgev1.SendResponse, error) {
	s.prompt <- req.GetPrompt()
	return &bridgev1.SendResponse{MessageId: "m1"}, nil
}

func (*server) Attach(stream grpc.BidiStreamingServer[bridgev1.AttachRequest, bridgev1.AttachResponse]) error {
	callback := &bridgev1.Callback{
		CallbackId: "c1", Kind: bridgev1.CallbackKind_CALLBACK_KIND_TOOL_CALL,
		Traceparent: "00-" + callbackTrace + "-b7ad6b7169203331-01", Tracestate: "vendor=1",
		Request: &bridgev1.Callback_ToolCall{ToolCall: &cliv1.ExternalToolRequestedData{ToolName: "trace"}},
	}
	for _, frame := range []*bridgev1.AttachResponse{
		{Frame: &bridgev1.AttachResponse_Started{Started: &bridgev1.AttachStarted{
			ParticipantId: "p1", Session: &bridgev1.Session{SessionId: "s1"},
		}}},
		{Frame: &bridgev1.AttachResponse_Stream{Stream: &bridgev1.SubscribeResponse{
			Frame: &bridgev1.SubscribeResponse_CallbackRequested{
				CallbackRequested: &bridgev1.CallbackRequested{Callback: callback, Offered: true},
			},
		}}},
	} {
		if err := stream.Send(frame); err != nil {
			return err
		}
	}
	for {
		if req, err := stream.Recv(); err != nil || req.GetLeave() != nil {
			return err
		}
	}
}

func TestTraces(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{prompt: make(chan *bridgev1.Prompt, 1)}
	g := grpc.NewServer()
	bridgev1.RegisterRuntimeServiceServer(g, s)
	bridgev1.RegisterSessionServiceServer(g, s)
	bridgev1.RegisterCallbackServiceServer(g, s)
	serving := make(chan error, 1)
	go func() { serving <- g.Serve(listener) }()
	defer func() { g.Stop(); <-serving }()

	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	ctx, span := provider.Tracer("test").Start(t.Context(), "agent")
	c, err := copilot.Dial(ctx, listener.Addr().String(),
		copilototel.WithOpenTelemetry(otelgrpc.WithTracerProvider(provider)))
	if err != nil {
		t.Fatal(err)
	}
	inHandler := make(chan trace.SpanContext, 1)
	session, err := c.CreateSession(ctx, copilot.SessionOptions{Tools: []copilot.Tool{copilot.NewTool("trace", "",
		func(ctx context.Context, _ struct{}) (string, error) {
			inHandler <- trace.SpanContextFromContext(ctx)
			return "", nil
		})}})
	if err != nil {
		t.Fatal(err)
	}
	if sc := <-inHandler; sc.TraceID().String() != callbackTrace || sc.TraceState().Get("vendor") != "1" {
		t.Errorf("trace of the handler: %v", sc)
	}
	if _, err := session.Send(ctx, "hello"); err != nil {
		t.Fatal(err)
	}
	want := "00-" + span.SpanContext().TraceID().String() + "-" + span.SpanContext().SpanID().String() + "-01"
	if got := (<-s.prompt).GetTraceparent(); got != want {
		t.Errorf("trace of the prompt: %q, want %q", got, want)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	names := map[string]bool{}
	for _, ended := range spans.Ended() {
		names[ended.Name()] = true
	}
	if !names["copilot.bridge.v1.SessionService/Send"] {
		t.Errorf("spans: %v", names)
	}
}
