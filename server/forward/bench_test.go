package forward_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
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
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
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
	c.replicas["b"].backend.subscribe = endless(b, 0)
	compared(b, eventsAtOnce, []string{"direct", "relayed"},
		reading(b, c.replicas["b"].Conn), reading(b, c.replicas["a"].Conn))
}

// endless returns a Subscribe that sends events of 1 KB for as long as it is read: as fast as it can, or, with a burst,
// so many each millisecond.
func endless(tb testing.TB, burst int) func(context.Context, *bridgev1.SubscribeRequest, frame.Sink) error {
	tb.Helper()
	event := heartbeat("s", 1)
	event.Frame = &bridgev1.SubscribeResponse_Events{Events: &bridgev1.EventBatch{Events: []*bridgev1.Event{
		{OriginalJson: proto.String(strings.Repeat("y", 1000))}}}}
	wire, err := proto.Marshal(event)
	if err != nil {
		tb.Fatal(err)
	}
	return func(ctx context.Context, _ *bridgev1.SubscribeRequest, emit frame.Sink) error {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for n := 1; ctx.Err() == nil; n++ {
			if err := emit(frame.Frame{Wire: [][]byte{wire}}); err != nil {
				return err
			}
			if burst > 0 && n%burst == 0 {
				<-tick.C
			}
		}
		return ctx.Err()
	}
}

// reading subscribes to the session and returns a function that receives the bytes of one frame.
func reading(tb testing.TB, conn *grpc.ClientConn) func() {
	tb.Helper()
	ctx, cancel := context.WithCancel(withToken(tb.Context()))
	tb.Cleanup(cancel)
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true},
		bridgev1.EventService_Subscribe_FullMethodName, grpc.ForceCodecV2(codec.New()))
	if err != nil {
		tb.Fatal(err)
	}
	request := &bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: "s"}}}
	if err := stream.SendMsg(request); err != nil {
		tb.Fatal(err)
	}
	var m codec.Raw
	return func() {
		if err := stream.RecvMsg(&m); err != nil {
			tb.Fatal(err)
		}
	}
}

// readerEnv makes a run of TestReader the other side of BenchmarkOwner.
const readerEnv = "FORWARD_READER"

// owner is what the other side of BenchmarkOwner knows of the owner.
type owner struct {
	// Socket and Address, with TLS, are for clients, ReplicaAddress is for replicas.
	Socket, Address, ReplicaAddress string
	TLS                             forward.TLS
}

// BenchmarkOwner compares what an event of 1 KB costs the owner's process if its reader is a client of the owner, with
// TLS or by a unix socket, and if it is a client of another replica. The reader and the other replica are in another
// process.
func BenchmarkOwner(b *testing.B) {
	c := start(b, func(c *server.Config) {
		c.Listen, c.Token = []string{"unix:" + servertest.SocketPath(b), "127.0.0.1:0"}, benchToken
		c.TLS = &server.TLS{CertFile: c.Forward.TLS.CertFile, KeyFile: c.Forward.TLS.KeyFile}
	}, "b")
	c.set("s", "b")
	own := c.replicas["b"]
	own.backend.subscribe = endless(b, 50)
	text, err := json.Marshal(owner{"unix:" + own.Server.Addrs()[0].String(), own.Server.Addrs()[1].String(),
		own.Server.ReplicaAddr().String(), c.ca.Issue(b)})
	if err != nil {
		b.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	reader := exec.CommandContext(b.Context(), self, "-test.run=^TestReader$", "-test.v")
	reader.Env = append(os.Environ(), readerEnv+"="+string(text))
	in, err := reader.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := reader.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := reader.Start(); err != nil {
		b.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	// read has the other side receive events, and returns when it has them.
	read := func(way string) func() {
		return func() {
			if _, err := fmt.Fprintln(in, way); err != nil {
				b.Fatal(err)
			}
			for lines.Scan() {
				if strings.HasSuffix(lines.Text(), "done "+way) {
					return
				}
			}
			b.Fatal("the reader has ended")
		}
	}
	compared(b, 1, []string{"tls", "socket", "relayed"}, read("tls"), read("socket"), read("relayed"))
	_ = in.Close()
	_, _ = io.Copy(io.Discard, out)
	if err := reader.Wait(); err != nil {
		b.Fatal(err)
	}
}

// eventsAtOnce is how many events the reader of a benchmark receives at a time.
const eventsAtOnce = 20_000

// TestReader is the other side of BenchmarkOwner. It receives events at the owner or through a replica, as each line of
// its input says, and prints a line when it has them.
func TestReader(t *testing.T) {
	var to owner
	if os.Getenv(readerEnv) == "" {
		t.Skip("BenchmarkOwner runs it")
	}
	if err := json.Unmarshal([]byte(os.Getenv(readerEnv)), &to); err != nil {
		t.Fatal(err)
	}
	c := start(t, func(c *server.Config) {
		c.Listen, c.Token = []string{"127.0.0.1:0"}, benchToken
		c.Forward.TLS = to.TLS
	}, "a")
	c.set("s", "b")
	c.mu.Lock()
	c.address["b"] = to.ReplicaAddress
	c.mu.Unlock()
	dial := func(address string, creds credentials.TransportCredentials) *grpc.ClientConn {
		conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	next := map[string]func(){
		"socket": reading(t, dial(to.Socket, insecure.NewCredentials())),
		"tls": reading(t, dial(to.Address, credentials.NewTLS(&tls.Config{
			InsecureSkipVerify: true, //nolint:gosec // the certificate names no host
		}))),
		"relayed": reading(t, c.replicas["a"].Conn),
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		for range eventsAtOnce {
			next[lines.Text()]()
		}
		fmt.Println("done", lines.Text())
	}
}
