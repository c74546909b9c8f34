package forward_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/codec"
	"github.com/copilot-grpc/copilot-grpc/server/forward"
)

// cpu returns the processor time that the process has used.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// compared runs operations in turns, so that all see the same machine. It reports the time and the processor time of
// each (of all sides together), and their ratios to the first one.
func compared(b *testing.B, batch int, names []string, operations ...func()) {
	b.Helper()
	run := func(f func()) (wall, used time.Duration) {
		begin, before := time.Now(), cpu(b)
		for range batch {
			f()
		}
		return time.Since(begin), cpu(b) - before
	}
	for _, f := range operations {
		run(f)
	}
	walls, cpus := make([]float64, len(names)), make([]float64, len(names))
	n := 0
	for b.Loop() {
		for i, f := range operations {
			wall, used := run(f)
			walls[i] += float64(wall.Nanoseconds())
			cpus[i] += float64(used.Nanoseconds())
		}
		n += batch
	}
	for i, name := range names {
		b.ReportMetric(walls[i]/float64(n), name+"-ns")
		b.ReportMetric(cpus[i]/float64(n), name+"-cpu-ns")
		if i > 0 {
			b.ReportMetric(walls[i]/walls[0], name+"/"+names[0])
			b.ReportMetric(cpus[i]/cpus[0], name+"/"+names[0]+"-cpu")
		}
	}
}

// bare is a server of gRPC alone.
type bare struct {
	bridgev1.UnimplementedSessionServiceServer
}

// GetSession implements bridgev1.SessionServiceServer.
func (bare) GetSession(_ context.Context, r *bridgev1.GetSessionRequest) (*bridgev1.GetSessionResponse, error) {
	return &bridgev1.GetSessionResponse{Session: &bridgev1.Session{SessionId: r.GetSessionId(), Name: "b"}}, nil
}

// startBare returns a client of a server of gRPC alone, with the credentials of both.
func startBare(b *testing.B, server, client credentials.TransportCredentials) bridgev1.SessionServiceClient {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a benchmark
	if err != nil {
		b.Fatal(err)
	}
	s := grpc.NewServer(grpc.Creds(server))
	bridgev1.RegisterSessionServiceServer(s, bare{})
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	b.Cleanup(func() {
		s.Stop()
		<-done
	})
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(),
		grpc.WithTransportCredentials(client))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = conn.Close() })
	return bridgev1.NewSessionServiceClient(conn)
}

// benched is two replicas of which b has the session "s", with TCP listeners.
func benched(b *testing.B) *cluster {
	b.Helper()
	c := start(b, func(c *server.Config) { c.Listen = []string{"127.0.0.1:0"}; c.Token = benchToken }, "a", "b")
	c.set("s", "b")
	return c
}

const benchToken = "a-token-of-a-benchmark"

// withToken returns the context of a call.
func withToken(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+benchToken)
}

// BenchmarkCall compares a small unary call to the owner, and the same call through another replica, with two hops of
// gRPC alone, of which one has the replicas' TLS. The times include the clients and all servers.
func BenchmarkCall(b *testing.B) {
	c := benched(b)
	ctx := withToken(b.Context())
	call := func(client bridgev1.SessionServiceClient) func() {
		return func() {
			if _, err := client.GetSession(ctx, &bridgev1.GetSessionRequest{SessionId: "s"}); err != nil {
				b.Fatal(err)
			}
		}
	}
	creds, err := forward.NewCredentials(c.ca.Issue(b), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	plain := call(startBare(b, insecure.NewCredentials(), insecure.NewCredentials()))
	secure := call(startBare(b, creds.Listener(), creds.Dialer()))
	compared(b, 200, []string{"hops", "direct", "relayed"}, func() { plain(); secure() },
		call(c.replicas["b"].sessions()), call(c.replicas["a"].sessions()))
}

// BenchmarkEvent compares an event of 1 KB from the owner with the same through another replica. The client receives
// bytes, so that its decoding does not count.
func BenchmarkEvent(b *testing.B) {
	c := benched(b)
	event := heartbeat("s", 1)
	event.Frame = &bridgev1.SubscribeResponse_Events{Events: &bridgev1.EventBatch{Events: []*bridgev1.Event{
		{OriginalJson: proto.String(strings.Repeat("y", 1000))}}}}
	wire, err := proto.Marshal(event)
	if err != nil {
		b.Fatal(err)
	}
	c.replicas["b"].backend.subscribe = func(ctx context.Context, _ *bridgev1.SubscribeRequest, emit frame.Sink) error {
		for ctx.Err() == nil {
			if err := emit(frame.Frame{Wire: [][]byte{wire}}); err != nil {
				return err
			}
		}
		return ctx.Err()
	}
	ctx, cancel := context.WithCancel(withToken(b.Context()))
	defer cancel()
	next := func(r *replica) func() {
		stream, err := r.Conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true},
			bridgev1.EventService_Subscribe_FullMethodName, grpc.ForceCodecV2(codec.New()))
		if err != nil {
			b.Fatal(err)
		}
		request := &bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: "s"}}}
		if err := stream.SendMsg(request); err != nil {
			b.Fatal(err)
		}
		var m codec.Raw
		return func() {
			if err := stream.RecvMsg(&m); err != nil {
				b.Fatal(err)
			}
		}
	}
	compared(b, 20_000, []string{"direct", "relayed"}, next(c.replicas["b"]), next(c.replicas["a"]))
}
