package server_test

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/login"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
	"github.com/copilot-grpc/copilot-grpc/server/rpc"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
	"github.com/copilot-grpc/copilot-grpc/server/status"
)

// linking is RuntimeService with links.
type linking struct{ store *login.Store }

func (l linking) Register(r grpc.ServiceRegistrar) { rpc.NewRuntime(info{}, l.store, nil).Register(r) }

// linkSite is a server whose RuntimeService creates links, with a TCP address for gRPC.
func linkSite(t *testing.T, c server.Config) (*testSite, bridgev1.RuntimeServiceClient) {
	t.Helper()
	store, err := login.Open(login.Config{})
	if err != nil {
		t.Fatal(err)
	}
	c.Web = &server.Web{Listen: "127.0.0.1:0", Logins: store}
	c.Listen = []string{"unix:" + servertest.SocketPath(t), "127.0.0.1:0"}
	s := &testSite{servertest.Start(t, c, linking{store}), store}
	return s, bridgev1.NewRuntimeServiceClient(s.Conn)
}

const createLink = "/copilot.bridge.v1.RuntimeService/CreateWebLink"

// use logs in by a link.
func (s *testSite) use(t *testing.T, url string) *visitor {
	t.Helper()
	base, token, _ := strings.Cut(url, "/login#")
	v := s.visitor(t)
	if base != v.base {
		t.Errorf("the link %q is not of %q", url, v.base)
	}
	v.want(200, v.send("POST", "/auth/link", tokenBody(token)))
	return v
}

// A link has the role of its caller or a lower one, and so have the links of its login.
func TestWebLinks(t *testing.T) {
	t.Parallel()
	s, runtimes := linkSite(t, server.Config{Token: webToken})
	for role, want := range map[bridgev1.Role]string{bridgev1.Role_ROLE_UNSPECIFIED: `"role":"owner","admin":true`,
		bridgev1.Role_ROLE_ADMIN: `"role":"owner","admin":true`, bridgev1.Role_ROLE_OWNER: `"role":"owner","expires"`,
		bridgev1.Role_ROLE_PARTICIPANT: `"role":"participant"`, bridgev1.Role_ROLE_OBSERVER: `"role":"observer"`} {
		link, err := runtimes.CreateWebLink(t.Context(), &bridgev1.CreateWebLinkRequest{Role: role})
		if err != nil {
			t.Fatal(err)
		}
		if left := time.Until(link.GetExpireTime().AsTime()); left < 9*time.Minute || left > 10*time.Minute {
			t.Errorf("the link lasts for %v", left)
		}
		v := s.use(t, link.GetUrl())
		if got := v.send("GET", "/auth/me", ""); !strings.Contains(got.body, want) {
			t.Errorf("%v: %s", role, got.body)
		}
		switch role {
		case bridgev1.Role_ROLE_OBSERVER:
			v.want(403, v.send("POST", createLink, "{}"))
		case bridgev1.Role_ROLE_PARTICIPANT:
			v.want(403, v.send("POST", createLink, `{"role":"ROLE_OWNER"}`))
			v.want(200, v.send("POST", createLink, `{"role":"ROLE_OBSERVER"}`))
		}
	}
	for _, req := range []*bridgev1.CreateWebLinkRequest{{Role: 5}, {Role: -1}, {Role: 257}, {Ttl: durationpb.New(0)},
		{Ttl: durationpb.New(-time.Hour)}, {Ttl: durationpb.New(25 * time.Hour)}} {
		_, err := runtimes.CreateWebLink(t.Context(), req)
		if status.Reason(grpcstatus.Convert(err)) != "INVALID_FIELD" {
			t.Errorf("%v: %v", req, err)
		}
	}
}

// The login of a link ends with the one of its creator.
func TestLinkOfALogin(t *testing.T) {
	t.Parallel()
	s, _ := linkSite(t, server.Config{Token: webToken})
	v := s.loggedIn(t, caller.Admin)
	me := v.send("GET", "/auth/me", "").body
	got := v.want(200, v.send("POST", createLink, "{}"))
	url := strings.Split(got.body, `"`)[3]
	if other := s.use(t, url).send("GET", "/auth/me", "").body; other != me {
		t.Errorf("%s, of %s", other, me)
	}
}

// A link of a static token ends with the token. A server without a listener for browsers has no links.
func TestLinkOfAToken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	write(t, file("tokens"), []byte("boss "+digestOf("the-boss's-token")+"\n"))
	write(t, file("policy"), []byte(`version: 1
identity: {tokens: tokens}
tenants: {acme: {members: [{token: boss, role: owner}]}}
`))
	p, err := policy.Open(file("policy"), slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	s, _ := linkSite(t, server.Config{Policy: p})
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer the-boss's-token")
	link, err := bridgev1.NewRuntimeServiceClient(s.Dial(t, 1)).CreateWebLink(ctx, &bridgev1.CreateWebLinkRequest{
		Role: bridgev1.Role_ROLE_PARTICIPANT})
	if err != nil {
		t.Fatal(err)
	}
	v := s.use(t, link.GetUrl())
	if got := v.send("GET", "/auth/me", ""); !strings.Contains(got.body,
		`"name":"boss","tenant":"acme","role":"participant"`) {
		t.Error(got.body)
	}
	v.want(200, v.send("POST", webInfo, "{}"))
	write(t, file("tokens"), []byte("boss "+digestOf("another-token")+"\n"))
	if err := p.Reload(); err != nil {
		t.Fatal(err)
	}
	v.want(401, v.send("POST", webInfo, "{}"))

	none := servertest.Start(t, server.Config{}, rpcRuntime{})
	_, err = bridgev1.NewRuntimeServiceClient(none.Conn).CreateWebLink(t.Context(), &bridgev1.CreateWebLinkRequest{})
	if status.Reason(grpcstatus.Convert(err)) != "FEATURE_DISABLED" {
		t.Errorf("without a listener: %v", err)
	}
}

// rpcRuntime is RuntimeService without links.
type rpcRuntime struct{}

func (rpcRuntime) Register(r grpc.ServiceRegistrar) { rpc.NewRuntime(info{}, nil, nil).Register(r) }
