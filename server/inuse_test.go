package server_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

// watchers serves streams that send a frame and then wait for their end.
func watchers() *events {
	return &events{subscribe: func(ctx context.Context, emit frame.Sink) error {
		if err := emit(frame.Frame{Message: &bridgev1.SubscribeResponse{}}); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}}
}

// watch begins a stream, and returns when it has begun.
func watch(ctx context.Context, conn *grpc.ClientConn) error {
	stream, err := bridgev1.NewEventServiceClient(conn).Subscribe(ctx, &bridgev1.SubscribeRequest{})
	if err != nil {
		return err
	}
	_, err = stream.Recv()
	return err
}

// wantConnectionLimit checks that an error names a limit of the connection and its value, and no time to retry.
func wantConnectionLimit(t *testing.T, err error, limit, most string) {
	t.Helper()
	named := false
	for _, d := range status.Convert(err).Details() {
		switch d := d.(type) {
		case *errdetails.ErrorInfo:
			named = d.GetReason() == "LIMIT_EXCEEDED" && d.GetMetadata()["limit"] == limit && d.GetMetadata()["maximum"] == most
		case *errdetails.RetryInfo:
			t.Error("a library would repeat the call")
		}
	}
	if status.Code(err) != codes.ResourceExhausted || !named || !strings.Contains(err.Error(), limit) {
		t.Errorf("error %v, want the limit %s of %s", err, limit, most)
	}
}

// A connection with as many streams as it may have refuses one more at once, and serves other calls.
func TestStreamsLeaveRoomForCalls(t *testing.T) {
	t.Parallel()
	for network, listen := range map[string][]string{"unix": nil, "TCP": {"127.0.0.1:0"}} {
		t.Run(network, func(t *testing.T) {
			t.Parallel()
			r := servertest.Start(t, server.Config{MaxConcurrentStreams: 64, Listen: listen, Token: token}, info{}, watchers())
			conn := r.Dial(t, 0, grpc.WithPerRPCCredentials(bearer(token)))
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			told, err := bridgev1.NewRuntimeServiceClient(conn).GetServerInfo(ctx, &bridgev1.GetServerInfoRequest{})
			if err != nil {
				t.Fatal(err)
			}
			most := told.GetLimits().GetMaxConnectionStreams()
			if most != 60 || told.GetLimits().GetMaxConnectionCalls() != 63 {
				t.Fatalf("the limits are %v", told.GetLimits())
			}
			first, end := context.WithCancel(ctx)
			for i := range most {
				of := ctx
				if i == 0 {
					of = first
				}
				if err := watch(of, conn); err != nil {
					t.Fatalf("stream %d: %v", i, err)
				}
			}
			wantConnectionLimit(t, watch(ctx, conn), "max_connection_streams", "60")
			for range 100 {
				if _, err := bridgev1.NewRuntimeServiceClient(conn).GetServerInfo(ctx, &bridgev1.GetServerInfoRequest{}); err != nil {
					t.Fatalf("a unary call: %v", err)
				}
			}
			other := r.Dial(t, 0, grpc.WithPerRPCCredentials(bearer(token)))
			if err := watch(ctx, other); err != nil {
				t.Errorf("another connection: %v", err)
			}
			end()
			eventually(t, "room", func() bool { return watch(ctx, conn) == nil })
		})
	}
}

// Unary calls that wait count too: one more than a connection may have is refused, and does not wait in the client.
func TestWaitingCallsAreRefused(t *testing.T) {
	t.Parallel()
	waiting, done := make(chan struct{}), make(chan struct{})
	defer close(done)
	slow := &sessions{get: func(_ context.Context, _ *bridgev1.GetSessionRequest) (*bridgev1.GetSessionResponse, error) {
		waiting <- struct{}{}
		<-done
		return &bridgev1.GetSessionResponse{}, nil
	}}
	r := servertest.Start(t, server.Config{MaxConcurrentStreams: 64}, info{}, slow)
	for range 63 {
		go func() {
			_, _ = bridgev1.NewSessionServiceClient(r.Conn).GetSession(t.Context(), &bridgev1.GetSessionRequest{})
		}()
		<-waiting
	}
	_, err := bridgev1.NewRuntimeServiceClient(r.Conn).GetServerInfo(t.Context(), &bridgev1.GetServerInfoRequest{})
	wantConnectionLimit(t, err, "max_connection_calls", "63")
}

// The listener for browsers has the same limits on a connection of HTTP/2.
func TestWebStreamsLeaveRoomForCalls(t *testing.T) {
	t.Parallel()
	r := servertest.Start(t, server.Config{MaxConcurrentStreams: 32, Token: token, Web: &server.Web{Listen: "127.0.0.1:0"}},
		info{}, watchers())
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	defer client.CloseIdleConnections()
	post := func(path string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.Server.WebAddr().String()+path,
			strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	for i := range 30 {
		if resp := post(subscribePath); resp.StatusCode != http.StatusOK {
			t.Fatalf("stream %d: %s", i, resp.Status)
		}
	}
	if resp := post(subscribePath); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("one more: %s", resp.Status)
	}
	if resp := post(serverInfo); resp.StatusCode != http.StatusOK {
		t.Errorf("a unary call: %s", resp.Status)
	}
}

// The reserve of the default is large enough for a program's unary calls.
func TestDefaultCallLimits(t *testing.T) {
	t.Parallel()
	r := servertest.Start(t, server.Config{}, info{})
	told, err := bridgev1.NewRuntimeServiceClient(r.Conn).GetServerInfo(t.Context(), &bridgev1.GetServerInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	l := told.GetLimits()
	if l.GetMaxConnectionStreams() != 960 || l.GetMaxConnectionCalls() != 1008 || l.GetMaxHeaderBytes() != 64<<10 ||
		l.GetMinPingInterval().AsDuration() != 10*time.Second || l.MaxConnectionAge != nil ||
		l.GetMaxFieldItems() != 10_000 || l.GetMaxMessageElements() != 200_000 {
		t.Errorf("the limits are %v", l)
	}
}
