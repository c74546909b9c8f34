package forward_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	grpcstatus "google.golang.org/grpc/status"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server/forward"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

// checked serves GetSession to replicas that Check accepts.
type checked struct {
	bridgev1.UnimplementedSessionServiceServer
	creds *forward.Credentials
}

// GetSession implements bridgev1.SessionServiceServer.
func (c *checked) GetSession(
	ctx context.Context, _ *bridgev1.GetSessionRequest,
) (*bridgev1.GetSessionResponse, error) {
	p, _ := peer.FromContext(ctx)
	return &bridgev1.GetSessionResponse{}, c.creds.Check(p.AuthInfo)
}

// move replaces the content of a replica's files.
func move(t *testing.T, from, to forward.TLS) {
	t.Helper()
	for old, path := range map[string]string{
		from.CertFile: to.CertFile, from.KeyFile: to.KeyFile, from.CAFile: to.CAFile,
	} {
		text, err := os.ReadFile(old)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReload changes the CA of the replicas: open connections of the old one are refused from then on, and new
// connections are accepted. Invalid files change nothing.
func TestReload(t *testing.T) {
	t.Parallel()
	before, after := servertest.NewCA(t), servertest.NewCA(t)
	serverFiles, clientFiles := before.Issue(t), before.Issue(t)
	load := func(files forward.TLS) *forward.Credentials {
		creds, err := forward.NewCredentials(files, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		return creds
	}
	serverCreds, clientCreds := load(serverFiles), load(clientFiles)
	s := grpc.NewServer(grpc.Creds(serverCreds.Listener()))
	bridgev1.RegisterSessionServiceServer(s, &checked{creds: serverCreds})
	lc, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // local
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(lc) }()
	defer func() {
		s.Stop()
		<-done
	}()
	dial := func() bridgev1.SessionServiceClient {
		conn, err := grpc.NewClient("passthrough:///"+lc.Addr().String(),
			grpc.WithTransportCredentials(clientCreds.Dialer()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return bridgev1.NewSessionServiceClient(conn)
	}
	get := func(client bridgev1.SessionServiceClient) codes.Code {
		_, err := client.GetSession(t.Context(), &bridgev1.GetSessionRequest{})
		return grpcstatus.Code(err)
	}
	old := dial()
	if code := get(old); code != codes.OK {
		t.Fatalf("at the start: %v", code)
	}
	if err := os.WriteFile(serverFiles.CAFile, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	serverCreds.Reload()
	if code := get(old); code != codes.OK {
		t.Errorf("with invalid files: %v", code)
	}
	move(t, after.Issue(t), serverFiles)
	serverCreds.Reload()
	if code := get(old); code == codes.OK {
		t.Error("a connection of the old CA is still trusted")
	}
	if code := get(dial()); code != codes.Unavailable {
		t.Errorf("a new connection with the old CA: %v", code)
	}
	move(t, after.Issue(t), clientFiles)
	clientCreds.Reload()
	if code := get(dial()); code != codes.OK {
		t.Errorf("a new connection with the new CA: %v", code)
	}
}

// TestConnectionsEndWithTheirReplicas relays to a series of replicas, each of which replaces the one before.
func TestConnectionsEndWithTheirReplicas(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b", "c")
	creds, err := forward.NewCredentials(c.ca.Issue(t), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	here := &locator{ownership: c.ownership, node: "here", memory: map[string]string{}}
	f := forward.New(&forward.Config{Node: "here", Locator: here}, creds, slog.New(slog.DiscardHandler))
	defer f.Close()
	call := func(owner string) error {
		c.set("of-"+owner, owner)
		ctx := metadata.NewIncomingContext(t.Context(), nil)
		_, err := f.Unary(ctx, bridgev1.SessionService_GetSession_FullMethodName,
			&bridgev1.GetSessionRequest{SessionId: "of-" + owner}, nil)
		return err
	}
	for _, owner := range []string{"a", "b", "a"} {
		if err := call(owner); err != nil {
			t.Fatal(err)
		}
	}
	a, b := c.address["a"], c.address["b"]
	if got := f.Addresses(); len(got) != 2 || !slices.Contains(got, a) || !slices.Contains(got, b) {
		t.Errorf("connections to %q", got)
	}
	c.mu.Lock()
	delete(c.address, "a")
	delete(c.address, "b")
	c.mu.Unlock()
	if err := call("c"); err != nil {
		t.Fatal(err)
	}
	if got := f.Addresses(); !slices.Equal(got, []string{c.address["c"]}) {
		t.Errorf("after the end of two replicas connections to %q", got)
	}
	f.Close()
	if err := call("c"); err == nil {
		t.Error("a call after the end was relayed")
	}
}
