package server_test

import (
	"context"
	"encoding/pem"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
	"github.com/copilot-grpc/copilot-grpc/server/rpc"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

const xfcc = "x-forwarded-client-cert"

// proxiedPolicy has a proxy, and members with certificates.
const proxiedPolicy = `version: 1
identity: {certificates: true, tokens: tokens, trust_domains: [corp], proxies: [{spiffe: 'spiffe://corp/envoy'}]}
tenants:
  acme:
    members:
      - {spiffe: 'spiffe://corp/boss', role: owner}
      - {spiffe: 'spiffe://corp/agents/*', role: observer}
      - {token: watcher, role: participant}
`

// behindProxies is a server with proxiedPolicy.
type behindProxies struct {
	*certified
	store *policy.Store
	audit *entries
	// closed reports that the server has closed a connection, because none of its callers is trusted any more.
	closed noted
}

// noted is a writer that looks for a text.
type noted struct {
	text string
	seen atomic.Bool
}

func (n *noted) Write(p []byte) (int, error) {
	if strings.Contains(string(p), n.text) {
		n.seen.Store(true)
	}
	return len(p), nil
}

func startBehindProxies(t *testing.T) *behindProxies {
	t.Helper()
	s := &behindProxies{certified: &certified{authority: newAuthority(t), dir: t.TempDir()}, audit: &entries{}}
	s.closed.text = "connection closed: its callers are no longer trusted"
	cert, key := s.issue(1, "")
	write(t, s.file("cert"), cert)
	write(t, s.file("key"), key)
	write(t, s.file("ca"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.cert.Raw}))
	write(t, s.file("tokens"), []byte("watcher "+digestOf("the-watcher's-token")+"\n"))
	write(t, s.file("policy"), []byte(proxiedPolicy))
	var err error
	if s.store, err = policy.Open(s.file("policy"), slog.New(slog.DiscardHandler), time.Now); err != nil {
		t.Fatal(err)
	}
	s.Running = servertest.Start(t, server.Config{Listen: []string{"127.0.0.1:0"}, Policy: s.store, Audit: s.audit,
		Logger: slog.New(slog.NewTextHandler(&s.closed, nil)),
		TLS:    &server.TLS{CertFile: s.file("cert"), KeyFile: s.file("key"), ClientCAFile: s.file("ca")},
		Web:    &server.Web{Listen: "127.0.0.1:0"}}, info{}, rpc.NewEvent(&following{}, nil))
	return s
}

// as is a connection with a certificate.
func (s *behindProxies) as(spiffe string) *grpc.ClientConn {
	s.t.Helper()
	return s.Dial(s.t, 0, grpc.WithTransportCredentials(credentials.NewTLS(s.client(spiffe))))
}

// told calls GetServerInfo with metadata, and returns the caller in the reply.
func (s *behindProxies) told(conn *grpc.ClientConn, md ...string) (*bridgev1.CallerInfo, error) {
	ctx := metadata.AppendToOutgoingContext(s.t.Context(), md...)
	info, err := bridgev1.NewRuntimeServiceClient(conn).GetServerInfo(ctx, &bridgev1.GetServerInfoRequest{})
	return info.GetCaller(), err
}

// edit replaces texts in proxiedPolicy and reloads it.
func (s *behindProxies) edit(changes ...string) {
	s.t.Helper()
	text := proxiedPolicy
	for change := range slices.Chunk(changes, 2) {
		if !strings.Contains(text, change[0]) {
			s.t.Fatalf("%q is not in the policy", change[0])
		}
		text = strings.Replace(text, change[0], change[1], 1)
	}
	write(s.t, s.file("policy"), []byte(text))
	if err := s.store.Reload(); err != nil {
		s.t.Fatal(err)
	}
}

// Callers behind a proxy have the rights of the certificates that it reports. The proxy itself has none, and no other
// caller gains rights by the header.
func TestCallersBehindProxies(t *testing.T) {
	t.Parallel()
	s := startBehindProxies(t)
	const envoy, watcher = "spiffe://corp/envoy", "Bearer the-watcher's-token"
	boss, agent := "By="+envoy+";Hash=ab;URI=spiffe://corp/boss", "URI=spiffe://corp/agents/a"
	for name, tc := range map[string]struct {
		from string
		md   []string
		role bridgev1.Role
		name string
		code codes.Code
	}{
		"a member":            {envoy, []string{xfcc, boss}, bridgev1.Role_ROLE_OWNER, "spiffe://corp/boss through " + envoy, 0},
		"another member":      {envoy, []string{xfcc, agent}, bridgev1.Role_ROLE_OBSERVER, "spiffe://corp/agents/a through " + envoy, 0},
		"a token":             {envoy, []string{"authorization", watcher}, bridgev1.Role_ROLE_PARTICIPANT, "watcher", 0},
		"a token first":       {envoy, []string{"authorization", watcher, xfcc, boss}, bridgev1.Role_ROLE_PARTICIPANT, "watcher", 0},
		"a wrong token":       {envoy, []string{"authorization", "Bearer x", xfcc, boss}, 0, "", codes.Unauthenticated},
		"no member":           {envoy, []string{xfcc, "URI=spiffe://corp/other"}, 0, "", codes.PermissionDenied},
		"another domain":      {envoy, []string{xfcc, "URI=spiffe://evil/boss"}, 0, "", codes.Unauthenticated},
		"the proxy itself":    {envoy, nil, 0, "", codes.Unauthenticated},
		"the proxy as caller": {envoy, []string{xfcc, "URI=" + envoy}, 0, "", codes.Unauthenticated},
		"two headers":         {envoy, []string{xfcc, boss, xfcc, agent}, 0, "", codes.Unauthenticated},
		"no names":            {envoy, []string{xfcc, "Hash=ab"}, 0, "", codes.Unauthenticated},
		"malformed":           {envoy, []string{xfcc, `Subject="` + boss}, 0, "", codes.Unauthenticated},

		"forged by a member":   {"spiffe://corp/agents/a", []string{xfcc, boss}, bridgev1.Role_ROLE_OBSERVER, "spiffe://corp/agents/a", 0},
		"forged by a stranger": {"spiffe://corp/other", []string{xfcc, boss}, 0, "", codes.PermissionDenied},
		"forged, no names":     {"", []string{xfcc, boss}, 0, "", codes.PermissionDenied},
		"forged, no proof":     {"-", []string{xfcc, boss}, 0, "", codes.Unauthenticated},
		"forged with a token":  {"-", []string{xfcc, boss, "authorization", watcher}, bridgev1.Role_ROLE_PARTICIPANT, "watcher", 0},
	} {
		got, err := s.told(s.as(tc.from), tc.md...)
		if grpcstatus.Code(err) != tc.code || got.GetRole() != tc.role || got.GetName() != tc.name {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if strings.Contains(tc.name, "through") && (got.GetProof() != bridgev1.CallerProof_CALLER_PROOF_CERTIFICATE ||
			got.GetExpireTime() == nil) {
			t.Errorf("%s: %v", name, got)
		}
		v := &visitor{t: t, base: "https://" + s.Server.WebAddr().String(), client: browser(t, s.client(tc.from))}
		var headers []string
		for pair := range slices.Chunk(tc.md, 2) {
			headers = append(headers, pair[0]+": "+pair[1])
		}
		if len(tc.md) == 4 && tc.md[0] == tc.md[2] {
			continue // the test's browser sends a header once
		}
		want := map[codes.Code]int{0: 200, codes.Unauthenticated: 401, codes.PermissionDenied: 403}[tc.code]
		body := v.want(want, v.send("POST", webInfo, "{}", headers...)).body
		if !strings.Contains(body, `"name":"`+tc.name+`"`) && tc.name != "" {
			t.Errorf("%s, at the listener for browsers: %s", name, body)
		}
	}
	if want := "call.refused refused  FORBIDDEN spiffe://corp/other through " + envoy; !slices.Contains(s.audit.list, want) {
		t.Errorf("%q is not in %q", want, s.audit.list)
	}
}

// Callers share a proxy's connection. A new policy ends the calls of those that lose their rights, and of all with the
// proxy.
func TestCallersBehindProxiesLoseTheirRights(t *testing.T) {
	t.Parallel()
	s := startBehindProxies(t)
	conn := s.as("spiffe://corp/envoy")
	follow := func(conn *grpc.ClientConn, who string) grpc.ServerStreamingClient[bridgev1.SubscribeResponse] {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		t.Cleanup(cancel)
		ctx = metadata.AppendToOutgoingContext(ctx, xfcc, "URI="+who)
		stream, err := bridgev1.NewEventServiceClient(conn).Subscribe(ctx, &bridgev1.SubscribeRequest{
			Sessions: []*bridgev1.SessionCursor{{SessionId: "s"}}})
		if err == nil {
			_, err = stream.Recv()
		}
		if err != nil {
			t.Fatal(err)
		}
		return stream
	}
	end := func(stream grpc.ServerStreamingClient[bridgev1.SubscribeResponse]) codes.Code {
		_, err := stream.Recv()
		return grpcstatus.Code(err)
	}
	agent, boss := follow(conn, "spiffe://corp/agents/a"), follow(conn, "spiffe://corp/boss")
	for i := range 20 { // more than the connection stores without calls
		if _, err := s.told(conn, xfcc, fmt.Sprint("URI=spiffe://corp/agents/", i)); err != nil {
			t.Fatal(err)
		}
	}
	s.edit("      - {spiffe: 'spiffe://corp/agents/*', role: observer}\n", "")
	if code := end(agent); code != codes.PermissionDenied {
		t.Errorf("the member that was removed: %v", code)
	}
	if s.closed.seen.Load() {
		t.Error("the connection of the other member was closed")
	}
	if _, err := s.told(conn, xfcc, "URI=spiffe://corp/boss"); err != nil {
		t.Errorf("the other member: %v", err)
	}
	s.edit(", proxies: [{spiffe: 'spiffe://corp/envoy'}]", "")
	if code := end(boss); code != codes.Unauthenticated {
		t.Errorf("the caller of a proxy that was removed: %v", code)
	}
	if !s.closed.seen.Load() {
		t.Error("the connection of a proxy that was removed stays")
	}
	// A certificate that becomes a proxy's is no longer its caller's, whoever the calls named before.
	s.edit()
	boss = follow(s.as("spiffe://corp/boss"), "spiffe://corp/agents/a")
	s.edit("envoy'}]", "boss'}]", "{spiffe: 'spiffe://corp/boss', role: owner}", "{dns: none, role: owner}", "role: observer",
		"role: owner")
	if code := end(boss); code != codes.Unauthenticated {
		t.Errorf("the certificate that became a proxy's: %v", code)
	}
}
