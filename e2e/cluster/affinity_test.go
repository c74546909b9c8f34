package cluster

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const ownerNode = "copilot-owner-node"

// withAffinity is Envoy's file with the additions of deploy/envoy/affinity.yaml.
func withAffinity(b *balanced, dir string) string {
	b.T.Helper()
	names := map[string]string{`regex: "replica-[abc]"`: `regex: "n[123]"`}
	for i, name := range []string{"a", "b", "c"} {
		names["name: replica-"+name] = fmt.Sprintf("name: n%d", i+1)
	}
	routes, clusters, _ := strings.Cut(harness.Edited(b.T, "../../deploy/envoy/affinity.yaml", names), "\nclusters:")
	_, routes, _ = strings.Cut(routes, "\nroutes:")
	indented := func(text string, by int) string {
		return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+strings.Repeat(" ", by)) + "\n"
	}
	const before, threshold = "              routes:\n", "{healthy_panic_threshold: {value: 1}}"
	text := b.config(dir, 75*time.Second)
	for _, once := range []string{before, threshold} {
		if strings.Count(text, once) != 1 {
			b.T.Fatalf("%q is not once in Envoy's file", once)
		}
	}
	// Envoy's counters show at once what health checks find, its workers learn it a second later by default.
	text = strings.Replace(text, threshold, "{healthy_panic_threshold: {value: 1}, update_merge_window: 0s}", 1)
	return strings.Replace(text, before, before+indented(routes, 14), 1) + indented(clusters, 2)
}

// stats are Envoy's counters that match a pattern.
func (b *balanced) stats(pattern string) string {
	b.T.Helper()
	resp, err := http.Get("http://" + b.admin + "/stats?filter=" + pattern)
	if err != nil {
		b.T.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		b.T.Fatal(err)
	}
	return string(text)
}

// owners are the replicas of sessions, as far as a client knows them by answers: calls name them.
type owners struct {
	mu    sync.Mutex
	names map[string]string
}

// unary is a client interceptor.
func (o *owners) unary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	about, ok := req.(interface{ GetSessionId() string })
	if !ok {
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	var header metadata.MD
	err := invoke(o.with(ctx, about.GetSessionId()), method, req, reply, cc, append(opts, grpc.Header(&header))...)
	if names := header.Get(ownerNode); len(names) == 1 {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.names[about.GetSessionId()] = names[0]
	}
	return err
}

// with names the owner of a session in the metadata of a call.
func (o *owners) with(ctx context.Context, session string) context.Context {
	o.mu.Lock()
	defer o.mu.Unlock()
	if name := o.names[session]; name != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, ownerNode, name)
	}
	return ctx
}

// Calls that name the owner of their session reach it first, also after the session has moved. When the owner is gone,
// the others take them.
func TestEnvoyAffinity(t *testing.T) {
	t.Parallel()
	b := newBalancedBy(t, withAffinity)
	create(b.replicas[1], "s")
	b.Eventually("each cluster of Envoy finds all replicas healthy", func() bool {
		return strings.Count(b.stats("membership_healthy"), ": 3\n") == 1+len(b.upstreams)
	})
	o := &owners{names: map[string]string{"s": "n2"}}
	conn, err := grpc.NewClient(b.address, grpc.WithTransportCredentials(credentials.NewTLS(b.tls)), grpc.WithDisableRetry(),
		grpc.WithUnaryInterceptor(o.unary))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	known := metadata.AppendToOutgoingContext(b.Ctx, "authorization", "Bearer "+operatorToken)
	sessions := bridgev1.NewSessionServiceClient(conn)
	turn := func(prompt string) error {
		got, err := sessions.SendAndWait(known,
			&bridgev1.SendAndWaitRequest{SessionId: "s", Prompt: &bridgev1.Prompt{Text: prompt}})
		if err == nil && got.GetOutcome().GetText() != "You said: "+prompt {
			err = fmt.Errorf("the turn ended with %v", got)
		}
		return err
	}
	// direct checks that calls and a stream reach a replica, and no other.
	direct := func(owner int) {
		t.Helper()
		before := b.requests()
		for n := range 4 {
			if err := turn(fmt.Sprintf("turn %d at %d", n, owner)); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(o.with(known, "s"))
		defer cancel()
		stream, err := bridgev1.NewEventServiceClient(conn).Subscribe(ctx,
			&bridgev1.SubscribeRequest{Sessions: []*bridgev1.SessionCursor{{SessionId: "s"}}})
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		after := b.requests()
		for i, at := range b.upstreams {
			if n, want := after[at]-before[at], map[bool]int{true: 5}[i == owner]; n != want {
				t.Errorf("replica %d got %d calls, want %d", i, n, want)
			}
		}
	}
	direct(1)
	_, err = b.remote.Runtimes().MoveSession(b.Ctx, &bridgev1.MoveSessionRequest{SessionId: "s", Node: "n3"})
	if err != nil {
		t.Fatal(err)
	}
	if err := turn("after the move"); err != nil { // relayed, and answered by the new owner
		t.Fatal(err)
	}
	direct(2)
	b.replicas[2].Stop(syscall.SIGKILL)
	// Before Envoy's health check finds out.
	if _, err := bridgev1.NewRuntimeServiceClient(conn).Ping(o.with(known, "s"), &bridgev1.PingRequest{}); err != nil {
		t.Errorf("a call that names a replica that has just ended: %v", err)
	}
	b.Eventually("another replica continues the session", func() bool { return turn("after the end") == nil })
	if owner := o.names["s"]; owner != "n1" && owner != "n2" {
		t.Errorf("the owner is %q", owner)
	}
}
