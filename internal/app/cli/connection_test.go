package cli

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// guard is a server that tells everybody its health, but refuses all tokens and says which one it has received.
type guard struct {
	bridgev1.UnimplementedRuntimeServiceServer
}

// Ping implements RuntimeServiceServer.
func (g guard) Ping(ctx context.Context, _ *bridgev1.PingRequest) (*bridgev1.PingResponse, error) {
	_, err := g.GetServerInfo(ctx, nil)
	return nil, err
}

// GetServerInfo implements RuntimeServiceServer.
func (guard) GetServerInfo(
	ctx context.Context, _ *bridgev1.GetServerInfoRequest,
) (*bridgev1.GetServerInfoResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	return nil, status.Errorf(codes.Unauthenticated, "sent: %s", strings.Join(md.Get("authorization"), ","))
}

// guarded runs a guard and returns its target.
func guarded(t *testing.T) string {
	t.Helper()
	path := socket(t)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	bridgev1.RegisterRuntimeServiceServer(s, guard{})
	healthpb.RegisterHealthServer(s, health.NewServer())
	go func() { _ = s.Serve(l) }()
	t.Cleanup(s.Stop)
	return "unix:" + path
}

// deaf is the target of a listener that ends connections, as one with TLS ends those without.
func deaf(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.(*net.TCPConn).CloseWrite()
			go func() { _, _ = io.Copy(io.Discard, c); _ = c.Close() }()
		}
	}()
	return l.Addr().String()
}

func TestRemedies(t *testing.T) {
	t.Parallel()
	target := guarded(t)
	expect(t, nil, "call --target "+target+" Health/Check", result{exitOK, `{"status":"SERVING"}`, ""})
	for args, want := range map[string]result{
		"call --target " + target + " RuntimeService/Ping":  {exitFailed, "", "--token or COPILOT_GRPC_TOKEN"},
		"call --target unix:/none RuntimeService/Ping":      {exitNoServer, "", `Start one with "copilot-grpc serve"`},
		"call --target '' RuntimeService/Ping":              {exitNoServer, "", "No server answers"},
		"call --target " + deaf(t) + " RuntimeService/Ping": {exitNoServer, "", "If it is a server with TLS, name it with"},
	} {
		expect(t, nil, args, want)
	}
}

// Commands that follow something say that their server has gone, and end when it has stayed away for too long.
func TestFollowersLoseTheirServer(t *testing.T) {
	t.Parallel()
	// While the inbox is there, the chat's session asks for the events of commands.
	target := serverOf(t, fakecli.Script{Replies: map[string]json.RawMessage{"session.eventLog.registerInterest": json.RawMessage(`{}`)}})
	expect(t, nil, "sessions create --id one --target "+target, result{exitOK, "one\n", ""})
	for args, first := range map[string]string{
		"events one": "session.start", "chat --plain one": "\n", "inbox": "Waiting", "sessions list --watch": "current",
	} {
		t.Run(args, func(t *testing.T) {
			t.Parallel()
			l, through := newLink(t, target)
			p, _, stderr := newProgram(nil, "")
			out := &watched{lines: make(chan string, 1000)}
			input, typing := io.Pipe()
			defer typing.Close()
			// It is also the patience with which the first stream is opened, on a machine that does other things.
			p.stdin, p.stdout, p.patience = input, &output{w: out}, 8*time.Second
			ended := make(chan int, 1)
			go func() { ended <- p.main(t.Context(), append(strings.Fields(args), "--target", through)) }()
			if strings.HasPrefix(args, "chat") {
				go func() { _, _ = io.WriteString(typing, "/nothing\n") }() // which is answered when the chat is ready
			}
			for line := ""; !strings.Contains(line, first); {
				select {
				case line = <-out.lines:
				case code := <-ended:
					t.Fatalf("it ends with %d: %s", code, stderr)
				}
			}
			l.cut()
			if code := <-ended; code != exitNoServer || !strings.Contains(stderr.String(), "No server answers at "+through) {
				t.Errorf("code %d: %s", code, stderr)
			}
			said := stderr.String()
			for len(out.lines) > 0 {
				said += <-out.lines
			}
			if !strings.Contains(said, "reconnecting for up to 8s") && !strings.Contains(said, "Trying again") {
				t.Errorf("nothing is said of the broken connection: %s", said)
			}
		})
	}
}
