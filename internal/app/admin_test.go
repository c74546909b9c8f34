package app

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	channelzv1 "google.golang.org/grpc/channelz/grpc_channelz_v1"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
)

// await asks for a page until it says something.
func (r *running) await(t *testing.T, path string, code int, text string) {
	t.Helper()
	gotCode, got := 0, ""
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); {
		if gotCode, got = r.get(t, path); gotCode == code && strings.Contains(got, text) {
			return
		}
	}
	t.Fatalf("%s says %d %q, not %d %q", path, gotCode, got, code, text)
}

// Readiness is there before the server runs, while it runs, and ends before its streams do;
// health is there all the time.
func TestReadiness(t *testing.T) {
	t.Parallel()
	c := Config{Listen: []string{"127.0.0.1:0"}, AdminListen: "127.0.0.1:0", AdminToken: adminToken,
		DrainGrace: testTimeout}
	script := fakecli.Script{Prompts: []fakecli.Prompt{{Turns: []fakecli.Turn{{Hang: true}}}}}
	a, err := New(t.Context(), c, WithRunner(fake(t, script)))
	if err != nil {
		t.Fatal(err)
	}
	r := &running{App: a, ended: make(chan error, 1)}
	r.await(t, "/readyz", http.StatusServiceUnavailable, "starting")
	r.await(t, "/healthz", http.StatusOK, "ok")
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	defer cancel()
	go func() { r.ended <- a.Run(ctx) }()
	r.await(t, "/readyz", http.StatusOK, "ready")
	conn, err := grpc.NewClient(a.Target(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithPerRPCCredentials(bearer(a.Token())))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	sessions := bridgev1.NewSessionServiceClient(conn)
	if _, err := sessions.CreateSession(t.Context(), &bridgev1.CreateSessionRequest{SessionId: "s"}); err != nil {
		t.Fatal(err)
	}
	if _, err := sessions.Send(t.Context(),
		&bridgev1.SendRequest{SessionId: "s", Prompt: &bridgev1.Prompt{Text: "hang"}}); err != nil {
		t.Fatal(err)
	}
	cancel() // a turn runs, which is waited for
	r.await(t, "/readyz", http.StatusServiceUnavailable, "draining")
	r.await(t, "/healthz", http.StatusOK, "ok")
	a.Abort()
	r.end(t)
}

// A CLI that exits again and again makes the server unready, if it is the server's own CLI.
func TestNotReadyWithBrokenCLI(t *testing.T) {
	t.Parallel()
	for who, ready := range map[string]bool{"operator": false, "acme-owner": true} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			o := startObserved(t, nil,
				WithRestarts(runtime.Backoff{First: time.Millisecond}, runtime.Breaker{Limit: 1, Cooldown: time.Hour}))
			o.plays("",
				fakecli.Script{Faults: []fakecli.MethodFault{{Method: "connect",
					Fault: fakecli.Fault{Kind: fakecli.FaultClose}}}})
			o.plays("acme",
				fakecli.Script{Faults: []fakecli.MethodFault{{Method: "connect",
					Fault: fakecli.Fault{Kind: fakecli.FaultClose}}}})
			_, err := bridgev1.NewSessionServiceClient(o.as(who)).CreateSession(t.Context(),
				&bridgev1.CreateSessionRequest{})
			if err == nil {
				t.Fatal("the CLI starts")
			}
			o.await(t, "/metrics", http.StatusOK, `copilot_runtimes{state="broken"} 1`)
			if ready {
				o.await(t, "/readyz", http.StatusOK, "ready")
			} else {
				o.await(t, "/readyz", http.StatusServiceUnavailable, "crashes repeatedly")
			}
		})
	}
}

// Channelz shows the connections of the public server, on the admin listener.
func TestChannelz(t *testing.T) {
	t.Parallel()
	o := startObserved(t, nil)
	conn, err := grpc.NewClient(o.Admin().String(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithPerRPCCredentials(bearer(adminToken)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	// A server appears with its sockets when it begins to serve them, among all those of the
	// process.
	addresses := ""
	for deadline := time.Now().Add(testTimeout); !strings.Contains(addresses, o.Target()); {
		if time.Now().After(deadline) {
			t.Fatalf("channelz knows %q, not %q", addresses, o.Target())
		}
		servers, err := channelzv1.NewChannelzClient(conn).GetServers(t.Context(), &channelzv1.GetServersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range servers.GetServer() {
			for _, socket := range s.GetListenSocket() {
				addresses += socket.GetName() + " "
			}
		}
	}
}
