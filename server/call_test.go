package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
	"github.com/copilot-grpc/copilot-grpc/server/status"
)

// logged runs a server whose log goes to the buffer, which may be read once it stopped.
func logged(t *testing.T, c server.Config, services ...server.Service) (*servertest.Running, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	c.Logger = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	return servertest.Start(t, c, services...), &log
}

// answering serves GetSession with one answer.
func answering(resp *bridgev1.GetSessionResponse, err error) *sessions {
	return &sessions{get: func(context.Context, *bridgev1.GetSessionRequest) (*bridgev1.GetSessionResponse, error) {
		return resp, err
	}}
}

func getSession(t *testing.T, r *servertest.Running, options ...grpc.CallOption) *grpcstatus.Status {
	t.Helper()
	_, err := bridgev1.NewSessionServiceClient(r.Conn).GetSession(t.Context(),
		&bridgev1.GetSessionRequest{SessionId: "s1"}, options...)
	return grpcstatus.Convert(err)
}

func TestFaultsArriveWithTheirDetails(t *testing.T) {
	t.Parallel()
	r := servertest.Start(t, server.Config{}, answering(nil,
		fault.New(fault.SessionNotFound, "Session not found: %s", "s1").WithField("session_id").With("session_id",
			"s1").WithRetry(time.Second)))
	st := getSession(t, r)
	if st.Code() != codes.NotFound || st.Message() != "Session not found: s1" {
		t.Errorf("status %v", st)
	}
	var info *errdetails.ErrorInfo
	kinds := 0
	for _, d := range st.Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			info = d
		case *errdetails.BadRequest, *errdetails.RetryInfo:
			kinds++
		}
	}
	if info.GetReason() != "SESSION_NOT_FOUND" || info.GetDomain() != "copilot-grpc" ||
		info.GetMetadata()["session_id"] != "s1" || info.GetMetadata()["field"] != "session_id" || kinds != 2 {
		t.Errorf("details %v", st.Details())
	}
}

func TestUnknownErrorsGoToTheLogOnly(t *testing.T) {
	t.Parallel()
	r, log := logged(t, server.Config{}, answering(nil, errors.New("disk 7 is full, token=hunter2hunter2")))
	st := getSession(t, r)
	if st.Code() != codes.Internal || status.Reason(st) != "INTERNAL" || strings.Contains(st.String(), "disk") {
		t.Errorf("status %v", st)
	}
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	if got := log.String(); !strings.Contains(got, "disk 7 is full") || strings.Contains(got, "hunter2") ||
		!strings.Contains(got, `"level":"ERROR"`) || !strings.Contains(got, `"session_id":"s1"`) {
		t.Errorf("log %s", got)
	}
}

func TestPanicsEndTheCallOnly(t *testing.T) {
	t.Parallel()
	s := &sessions{
		get: func(context.Context, *bridgev1.GetSessionRequest) (*bridgev1.GetSessionResponse, error) {
			panic("array of hunters")
		},
		run: func(context.Context, *bridgev1.RunRequest, frame.Sink) error { panic("array of runners") },
	}
	r, log := logged(t, server.Config{}, s, info{})
	stream, err := bridgev1.NewSessionServiceClient(r.Conn).Run(t.Context(), new(bridgev1.RunRequest))
	if err != nil {
		t.Fatal(err)
	}
	_, err = stream.Recv()
	for _, st := range []*grpcstatus.Status{getSession(t, r), grpcstatus.Convert(err)} {
		if st.Code() != codes.Internal || status.Reason(st) != "INTERNAL" || strings.Contains(st.String(), "array") {
			t.Errorf("status %v", st)
		}
	}
	if _, err := bridgev1.NewRuntimeServiceClient(r.Conn).GetServerInfo(t.Context(),
		new(bridgev1.GetServerInfoRequest)); err != nil {
		t.Errorf("the call after: %v", err)
	}
	_ = r.Stop()
	for _, want := range []string{"array of hunters", "array of runners", "call_test.go"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log lacks %q", want)
		}
	}
}

func TestUnknownMethodsHaveAReason(t *testing.T) {
	t.Parallel()
	r := servertest.Start(t, server.Config{}, info{})
	for _, method := range []string{"/copilot.bridge.v1.RuntimeService/NoSuch", "/no.such.Service/Get"} {
		err := r.Conn.Invoke(t.Context(), method, new(bridgev1.PingRequest), new(bridgev1.PingResponse))
		if st := grpcstatus.Convert(err); st.Code() != codes.Unimplemented || status.Reason(st) != "METHOD_UNKNOWN" {
			t.Errorf("%s: %v", method, st)
		}
	}
}

func TestPositionTrailer(t *testing.T) {
	t.Parallel()
	record := func(ctx context.Context) { position.Record(ctx, position.Position{Epoch: 3, Seq: 17}) }
	for name, tc := range map[string]struct {
		err  error
		want []string
		do   func(context.Context)
	}{
		"reply":    {nil, []string{"3/17"}, record},
		"error":    {fault.New(fault.SessionBusy, "busy").WithField("prompt.mode"), []string{"3/17"}, record},
		"no place": {nil, nil, func(context.Context) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := servertest.Start(t, server.Config{}, &sessions{
				get: func(ctx context.Context, _ *bridgev1.GetSessionRequest) (*bridgev1.GetSessionResponse, error) {
					tc.do(ctx)
					return new(bridgev1.GetSessionResponse), tc.err
				},
				run: func(ctx context.Context, _ *bridgev1.RunRequest, _ frame.Sink) error {
					tc.do(ctx)
					return tc.err
				},
			})
			var unary metadata.MD
			getSession(t, r, grpc.Trailer(&unary))
			stream, err := bridgev1.NewSessionServiceClient(r.Conn).Run(t.Context(), new(bridgev1.RunRequest))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Recv(); err == nil {
				t.Fatal("a frame came from nowhere")
			}
			for kind, md := range map[string]metadata.MD{"unary": unary, "stream": stream.Trailer()} {
				if got := md.Get(position.Trailer); strings.Join(got, " ") != strings.Join(tc.want, " ") {
					t.Errorf("%s: trailer %q, want %q", kind, got, tc.want)
				}
				reason, field := "", ""
				if tc.err != nil {
					reason, field = "SESSION_BUSY", "prompt.mode"
				}
				if got := [2]string{strings.Join(md.Get("copilot-reason"), " "),
					strings.Join(md.Get("copilot-field"), " ")}; got != [2]string{reason, field} {
					t.Errorf("%s: reason and field in the trailer are %q", kind, got)
				}
			}
		})
	}
}

// Frames as large as the contract allows, and larger, arrive whole, alone or wrapped.
func TestLargeFrames(t *testing.T) {
	t.Parallel()
	want := &bridgev1.SubscribeResponse{SessionId: "s1", Frame: &bridgev1.SubscribeResponse_Events{
		Events: &bridgev1.EventBatch{Events: []*bridgev1.Event{{OriginalJson: proto.String(strings.Repeat("y",
			3<<20))}}},
	}}
	wire, err := proto.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	pieces := [][]byte{wire[:5], wire[5 : 1<<20], wire[1<<20:]}
	emit := func(emit frame.Sink) error {
		return errors.Join(emit(frame.Frame{Wire: pieces}), emit(frame.Frame{Message: want}))
	}
	r := servertest.Start(t, server.Config{},
		&events{subscribe: func(_ context.Context, sink frame.Sink) error { return emit(sink) }},
		&sessions{run: func(_ context.Context, _ *bridgev1.RunRequest, sink frame.Sink) error { return emit(sink) }})
	sub, err := bridgev1.NewEventServiceClient(r.Conn).Subscribe(t.Context(), new(bridgev1.SubscribeRequest))
	if err != nil {
		t.Fatal(err)
	}
	run, err := bridgev1.NewSessionServiceClient(r.Conn).Run(t.Context(), new(bridgev1.RunRequest))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if got, err := sub.Recv(); err != nil || !proto.Equal(got, want) {
			t.Errorf("Subscribe, frame %d: error %v", i, err)
		}
		if got, err := run.Recv(); err != nil || !proto.Equal(got.GetStream(), want) {
			t.Errorf("Run, frame %d: error %v", i, err)
		}
	}
	if _, err := sub.Recv(); err != io.EOF {
		t.Errorf("Subscribe ends with %v", err)
	}
}

func TestMessagesOverTheLimitAreRefused(t *testing.T) {
	t.Parallel()
	r := servertest.Start(t, server.Config{MaxRecvBytes: 1 << 10}, answering(new(bridgev1.GetSessionResponse), nil))
	_, err := bridgev1.NewSessionServiceClient(r.Conn).GetSession(t.Context(),
		&bridgev1.GetSessionRequest{SessionId: strings.Repeat("x", 2<<10)})
	if st := grpcstatus.Convert(err); st.Code() != codes.ResourceExhausted {
		t.Errorf("status %v", st)
	}
}

func TestLogOfCalls(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		requests bool
		want     []string
		not      []string
	}{
		"plain": {false,
			[]string{`"method":"/copilot.bridge.v1.SessionService/Run"`, `"code":"OK"`, `"duration":`,
				`"session_id":"s1"`, `"network":"unix"`}, []string{"say it", "hunter2"}},
		"requests": {true, []string{"say it", `"session_id":"s1"`}, []string{"hunter2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, log := logged(t, server.Config{LogRequests: tc.requests},
				&sessions{run: func(context.Context, *bridgev1.RunRequest, frame.Sink) error { return nil }})
			stream, err := bridgev1.NewSessionServiceClient(r.Conn).Run(t.Context(), &bridgev1.RunRequest{
				Session: &bridgev1.RunRequest_SessionId{SessionId: "s1"},
				Prompt: &bridgev1.Prompt{Text: "say it",
					RequestHeaders: map[string]string{"authorization": "hunter2"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := stream.Recv(); err != io.EOF {
				t.Fatal(err)
			}
			_ = r.Stop()
			for _, s := range tc.want {
				if !strings.Contains(log.String(), s) {
					t.Errorf("the log lacks %q: %s", s, log)
				}
			}
			for _, s := range tc.not {
				if strings.Contains(log.String(), s) {
					t.Errorf("the log has %q", s)
				}
			}
		})
	}
}

func TestSendStream(t *testing.T) {
	t.Parallel()
	request := func() *bridgev1.SendStreamRequest {
		return &bridgev1.SendStreamRequest{Piece: &bridgev1.SendStreamRequest_Request{Request: &bridgev1.SendRequest{SessionId: "s1"}}}
	}
	chunk := func(s string) *bridgev1.SendStreamRequest {
		return &bridgev1.SendStreamRequest{Piece: &bridgev1.SendStreamRequest_Chunk{Chunk: &bridgev1.AttachmentChunk{Data: []byte(s)}}}
	}
	r := servertest.Start(t, server.Config{},
		&sessions{sendStream: func(_ context.Context, first *bridgev1.SendRequest,
			next func() (*bridgev1.AttachmentChunk, error)) (*bridgev1.SendStreamResponse, error) {
			got := first.GetSessionId()
			for {
				c, err := next()
				if err == io.EOF {
					return &bridgev1.SendStreamResponse{MessageId: got}, nil
				}
				if err != nil {
					return nil, err
				}
				got += "+" + string(c.GetData())
			}
		}})
	for name, tc := range map[string]struct {
		send []*bridgev1.SendStreamRequest
		want string
		code codes.Code
	}{
		"no chunk":            {[]*bridgev1.SendStreamRequest{request()}, "s1", codes.OK},
		"chunks":              {[]*bridgev1.SendStreamRequest{request(), chunk("a"), chunk("b")}, "s1+a+b", codes.OK},
		"nothing":             {nil, "", codes.InvalidArgument},
		"chunk first":         {[]*bridgev1.SendStreamRequest{chunk("a")}, "", codes.InvalidArgument},
		"request again":       {[]*bridgev1.SendStreamRequest{request(), request()}, "", codes.InvalidArgument},
		"piece without value": {[]*bridgev1.SendStreamRequest{request(), {}}, "", codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			stream, err := bridgev1.NewSessionServiceClient(r.Conn).SendStream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range tc.send {
				if err := stream.Send(m); err != nil && err != io.EOF {
					t.Fatal(err)
				}
			}
			resp, err := stream.CloseAndRecv()
			if grpcstatus.Code(err) != tc.code || resp.GetMessageId() != tc.want {
				t.Errorf("%q, %v", resp.GetMessageId(), err)
			}
		})
	}
}
