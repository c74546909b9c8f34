package forward_test

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/forward"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
	"github.com/copilot-grpc/copilot-grpc/server/status"
)

const tenants = `
version: 1
identity: {tokens: tokens}
tenants:
  acme: {members: [{token: acme, role: participant}], private_urls: ["https://acme.example"]}
  rival: {members: [{token: rival, role: owner}]}
  boxed: {members: [{token: boxed, role: owner}], sandbox: [confine]}
`

// tokenOf returns the token of a tenant's member.
func tokenOf(tenant string) string { return "token-of-the-member-of-" + tenant }

// withPolicy makes replicas serve the tenants of a policy, on a TCP port.
func withPolicy(tb testing.TB, text string) func(*server.Config) {
	tb.Helper()
	return func(c *server.Config) {
		dir := tb.TempDir()
		var tokens strings.Builder
		for _, tenant := range []string{"acme", "rival", "boxed"} {
			sum := sha256.Sum256([]byte(tokenOf(tenant)))
			tokens.WriteString(tenant + " " + hex.EncodeToString(sum[:]) + "\n")
		}
		for name, text := range map[string]string{"policy": text, "tokens": tokens.String()} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				tb.Fatal(err)
			}
		}
		var err error
		c.Policy, err = policy.Open(filepath.Join(dir, "policy"), slog.New(slog.DiscardHandler), time.Now)
		if err != nil {
			tb.Fatal(err)
		}
		c.Listen = []string{"127.0.0.1:0"}
	}
}

// as returns a context for calls of a tenant's member.
func as(ctx context.Context, tenant string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+tokenOf(tenant))
}

// TestCallersAreTheirsAtTheOwner compares the caller that the owner sees with that of a call to the owner itself.
func TestCallersAreTheirsAtTheOwner(t *testing.T) {
	t.Parallel()
	c := start(t, withPolicy(t, tenants), "a", "b")
	callers := make(chan caller.Caller, 1)
	for _, r := range c.replicas {
		r.backend.get = func(ctx context.Context, _ *bridgev1.GetSessionRequest) (*bridgev1.GetSessionResponse, error) {
			callers <- caller.From(ctx)
			return &bridgev1.GetSessionResponse{Session: &bridgev1.Session{Name: r.node}}, nil
		}
	}
	for tenant, owner := range map[string]string{"acme": "b", "rival": "a", "boxed": "b"} {
		c.set(tenant+"/s", owner)
		var seen []caller.Caller
		for _, entry := range []string{"a", "b"} {
			reply, err := c.replicas[entry].sessions().GetSession(as(t.Context(), tenant),
				&bridgev1.GetSessionRequest{SessionId: "s"})
			if err != nil || reply.GetSession().GetName() != owner {
				t.Fatalf("%s through %s: %v, %v", tenant, entry, reply, err)
			}
			who := <-callers
			if !strings.HasPrefix(who.Peer, "127.0.0.1:") || who.Tenant != tenant || who.Identity == "" {
				t.Errorf("caller %+v", who)
			}
			who.Peer = ""
			seen = append(seen, who)
		}
		if seen[0] != seen[1] {
			t.Errorf("%s: relayed %+v, direct %+v", tenant, seen[0], seen[1])
		}
	}
}

// TestOwnerChecksRights gives the replicas different policies, as during a reload: the owner's counts too.
func TestOwnerChecksRights(t *testing.T) {
	t.Parallel()
	c := start(t, withPolicy(t, tenants), "a")
	c.join(t, "b", withPolicy(t, `
version: 1
identity: {tokens: tokens}
tenants:
  acme: {members: [], private_urls: []}
  boxed: {members: []}
`))
	for _, key := range []string{"acme/s", "boxed/s", "rival/s"} {
		c.set(key, "b")
	}
	a := c.replicas["a"]
	url := &cliv1.Attachment{Variant: &cliv1.Attachment_GithubUrl{
		GithubUrl: &cliv1.AttachmentGitHubUrl{Url: "https://acme.example/x"}}}
	send := func(tenant string, attachments ...*cliv1.Attachment) error {
		_, err := a.sessions().Send(as(t.Context(), tenant), &bridgev1.SendRequest{SessionId: "s",
			Prompt: &bridgev1.Prompt{Text: "x", Attachments: attachments}})
		return err
	}
	if err := send("acme"); err != nil {
		t.Errorf("a prompt without attachments: %v", err)
	}
	if err := send("acme", url); grpcstatus.Code(err) != codes.PermissionDenied {
		t.Errorf("an address that only the entry permits: %v", err)
	}
	if err := send("rival"); grpcstatus.Code(err) != codes.PermissionDenied {
		t.Errorf("a tenant that the owner does not have: %v", err)
	}
	file := &cliv1.Attachment{Variant: &cliv1.Attachment_File{File: &cliv1.AttachmentFile{Path: "/etc/passwd"}}}
	if err := send("boxed", file); grpcstatus.Code(err) != codes.PermissionDenied {
		t.Errorf("a file of the owner's machine for a tenant that it does not confine: %v", err)
	}
}

// TestGuestsAtTheOwner checks a guest's request by the guest rules where the session is.
func TestGuestsAtTheOwner(t *testing.T) {
	t.Parallel()
	c := start(t, withPolicy(t, tenants), "a", "b")
	c.set("rival/s", "b")
	owner := c.replicas["b"].backend
	owner.send = func(ctx context.Context, r *bridgev1.SendRequest) (*bridgev1.SendResponse, error) {
		if r.GetSessionId() != "rival/s" || caller.From(ctx).Tenant != "boxed" {
			return nil, fault.New(fault.SessionNotFound, "Session not found")
		}
		return &bridgev1.SendResponse{}, caller.CheckGuest(ctx, "rival")
	}
	send := func(tenant string, attachments ...*cliv1.Attachment) (codes.Code, []string) {
		var header metadata.MD
		_, err := c.replicas["a"].sessions().Send(as(t.Context(), tenant), &bridgev1.SendRequest{SessionId: "rival/s",
			Prompt: &bridgev1.Prompt{Text: "x", Attachments: attachments}}, grpc.Header(&header))
		return grpcstatus.Code(err), header.Get(forward.HeaderOwner)
	}
	if code, owner := send("boxed"); code != codes.OK || len(owner) != 1 {
		t.Errorf("a guest: %v, owner %q", code, owner)
	}
	file := &cliv1.Attachment{Variant: &cliv1.Attachment_File{File: &cliv1.AttachmentFile{Path: "/etc/passwd"}}}
	if code, _ := send("boxed", file); code != codes.PermissionDenied {
		t.Errorf("a guest that names a file of the owner's machine: %v", code)
	}
	if code, owner := send("acme"); code != codes.NotFound || len(owner) > 0 {
		t.Errorf("a tenant that the session is not shared with: %v, owner %q", code, owner)
	}
}

// claims are identities that an attacker would like to have.
var claims = []string{
	`{"tenant":"","name":"root","role":"admin"}`, `{"tenant":"rival","name":"x","role":"owner"}`, `{}`, "",
}

// TestOnlyReplicasPassCallers sends the metadata of replicas to the listeners for callers.
func TestOnlyReplicasPassCallers(t *testing.T) {
	t.Parallel()
	const token = "a-token-of-a-test-server"
	c := start(t, func(c *server.Config) {
		c.Listen = append(c.Listen, "unix:"+servertest.SocketPath(t), "127.0.0.1:0")
		c.Web, c.Token = &server.Web{Listen: "127.0.0.1:0"}, token
	}, "a")
	a := c.replicas["a"]
	for i := range a.Server.Addrs() {
		conn := a.Dial(t, i)
		for _, claim := range claims {
			ctx := metadata.AppendToOutgoingContext(t.Context(), forward.MetadataCaller, claim, "authorization",
				"Bearer "+token)
			_, err := bridgev1.NewSessionServiceClient(conn).GetSession(ctx,
				&bridgev1.GetSessionRequest{SessionId: "s"})
			if grpcstatus.Code(err) != codes.PermissionDenied {
				t.Errorf("address %d, %q: %v", i, claim, err)
			}
		}
	}
	for _, claim := range claims {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+a.Server.WebAddr().String()+
			bridgev1.SessionService_GetSession_FullMethodName, strings.NewReader(`{"sessionId":"s"}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set(forward.MetadataCaller, base64.RawStdEncoding.EncodeToString([]byte(claim)))
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("web, %q: %d %s", claim, resp.StatusCode, text)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// dialReplica returns a client of the listener for replicas, with the certificate of files.
func dialReplica(t *testing.T, r *replica, files forward.TLS) bridgev1.SessionServiceClient {
	t.Helper()
	config := &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, RootCAs: x509.NewCertPool(),
		InsecureSkipVerify: true} //nolint:gosec // the attacker does not care
	if files.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	conn, err := grpc.NewClient("passthrough:///"+r.Server.ReplicaAddr().String(),
		grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return bridgev1.NewSessionServiceClient(conn)
}

// TestReplicaListenerRefusesOthers calls the listener for replicas without being one.
func TestReplicaListenerRefusesOthers(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a")
	a := c.replicas["a"]
	c.set("s", "a")
	reached := false
	a.backend.get = func(context.Context, *bridgev1.GetSessionRequest) (*bridgev1.GetSessionResponse, error) {
		reached = true
		return &bridgev1.GetSessionResponse{}, nil
	}
	get := func(client bridgev1.SessionServiceClient, claim ...string) *grpcstatus.Status {
		ctx := t.Context()
		for _, value := range claim {
			ctx = metadata.AppendToOutgoingContext(ctx, forward.MetadataCaller, value)
		}
		_, err := client.GetSession(ctx, &bridgev1.GetSessionRequest{SessionId: "s"})
		return grpcstatus.Convert(err)
	}
	admin := claims[0]
	plain, err := grpc.NewClient("passthrough:///"+a.Server.ReplicaAddr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = plain.Close() })
	for name, client := range map[string]bridgev1.SessionServiceClient{
		"without TLS":                         bridgev1.NewSessionServiceClient(plain),
		"without a certificate":               dialReplica(t, a, forward.TLS{}),
		"with the certificate of another CA":  dialReplica(t, a, servertest.NewCA(t).Issue(t)),
		"with a certificate for servers only": dialReplica(t, a, c.ca.Issue(t, x509.ExtKeyUsageServerAuth)),
	} {
		if st := get(client, admin); st.Code() != codes.Unavailable {
			t.Errorf("%s: %v", name, st)
		}
	}
	replica := dialReplica(t, a, c.ca.Issue(t))
	for name, claim := range map[string][]string{
		"no caller": nil, "two callers": {admin, admin}, "no JSON": {"x"}, "no role": {`{"tenant":""}`},
		"nobody":          {`{"tenant":"","role":"nobody"}`},
		"a tenant's path": {`{"tenant":"../x","role":"owner"}`},
	} {
		if st := get(replica, claim...); st.Code() != codes.Unauthenticated || status.Reason(st) != "UNAUTHENTICATED" {
			t.Errorf("%s: %v", name, st)
		}
	}
	if st := get(replica, `{"tenant":"acme","role":"owner"}`); st.Code() != codes.PermissionDenied {
		t.Errorf("a tenant without a policy: %v", st)
	}
	if reached {
		t.Error("a refused call reached the session")
	}
	if st := get(replica, admin); st.Code() != codes.OK || !reached {
		t.Errorf("a replica: %v", st)
	}
}

// TestReplicasRefuseStrangers lets an owner's address lead to a server with the certificate of another CA.
func TestReplicasRefuseStrangers(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a")
	stranger := start(t, nil, "b").replicas["b"]
	stranger.backend.get = func(context.Context, *bridgev1.GetSessionRequest) (*bridgev1.GetSessionResponse, error) {
		t.Error("the stranger received a call")
		return nil, nil
	}
	c.set("s", "b")
	c.address["b"] = stranger.Server.ReplicaAddr().String()
	_, err := c.replicas["a"].sessions().GetSession(t.Context(), &bridgev1.GetSessionRequest{SessionId: "s"})
	unavailable(t, err)
}

func TestBadConfiguration(t *testing.T) {
	t.Parallel()
	ca := servertest.NewCA(t)
	good := func() *forward.Config {
		return &forward.Config{Node: "a", Listen: "127.0.0.1:0", Locator: &locator{}, TLS: ca.Issue(t)}
	}
	for name, change := range map[string]func(*forward.Config){
		"no name":        func(c *forward.Config) { c.Node = "" },
		"no locator":     func(c *forward.Config) { c.Locator = nil },
		"no certificate": func(c *forward.Config) { c.TLS = forward.TLS{} },
		"no such file":   func(c *forward.Config) { c.TLS.KeyFile += "x" },
		"not a CA":       func(c *forward.Config) { c.TLS.CAFile = c.TLS.KeyFile },
		"another CA":     func(c *forward.Config) { c.TLS.CAFile = servertest.NewCA(t).Issue(t).CAFile },
		"for servers":    func(c *forward.Config) { c.TLS = ca.Issue(t, x509.ExtKeyUsageServerAuth) },
		"for clients":    func(c *forward.Config) { c.TLS = ca.Issue(t, x509.ExtKeyUsageClientAuth) },
		"a bad address":  func(c *forward.Config) { c.Listen = "nowhere" },
	} {
		c := good()
		change(c)
		s, err := server.New(t.Context(), server.Config{Listen: []string{"unix:" + servertest.SocketPath(t)},
			Services: []server.Service{nothing{}}, Forward: c, Logger: slog.New(slog.DiscardHandler)})
		if err == nil {
			t.Errorf("%s: no error", name)
			_ = s.Close()
		}
	}
}

// A replica that can have no others listens for none, and needs no certificate.
func TestAlone(t *testing.T) {
	t.Parallel()
	s, err := server.New(t.Context(), server.Config{
		Listen: []string{"unix:" + servertest.SocketPath(t)}, Services: []server.Service{nothing{}},
		Forward: &forward.Config{Node: "a", Locator: &locator{}}, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if a := s.ReplicaAddr(); a != nil {
		t.Errorf("it listens on %v", a)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Errorf("it ends with %v", err)
	}
}

// nothing is a service without methods.
type nothing struct{}

// Register implements server.Service.
func (nothing) Register(grpc.ServiceRegistrar) {}
