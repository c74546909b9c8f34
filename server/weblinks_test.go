package server_test

import (
	"bufio"
	"io"
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
func linkSite(t *testing.T, c server.Config, others ...server.Service) (*testSite, bridgev1.RuntimeServiceClient) {
	t.Helper()
	store, err := login.Open(login.Config{})
	if err != nil {
		t.Fatal(err)
	}
	c.Web = &server.Web{Listen: "127.0.0.1:0", Logins: store}
	c.Listen = []string{"unix:" + servertest.SocketPath(t), "127.0.0.1:0"}
	s := &testSite{servertest.Start(t, c, append(others, linking{store})...), store}
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

// createsLink returns a link that a login creates.
func (v *visitor) createsLink() string {
	v.t.Helper()
	return strings.Split(v.want(200, v.send("POST", createLink, "{}")).body, `"`)[3]
}

// The login of a link ends with the login that created the link, and with the ancestors of that one: the logins, their
// streams, and the links that were not used.
func TestLogoutEndsDescendants(t *testing.T) {
	t.Parallel()
	s, _ := linkSite(t, server.Config{Token: webToken}, rpc.NewEvent(&following{}, nil))
	v, beside := s.loggedIn(t, caller.Admin), s.loggedIn(t, caller.Admin)
	child := s.use(t, v.createsLink())
	grandchild := s.use(t, child.createsLink())
	unused := []string{v.createsLink(), child.createsLink(), grandchild.createsLink()}
	streams := []*bufio.Reader{child.follow(), grandchild.follow()}
	v.want(200, v.send("POST", "/auth/logout", "{}"))
	for _, lines := range streams {
		if rest, err := io.ReadAll(lines); err != nil || !strings.Contains(string(rest), `"code":"unauthenticated"`) {
			t.Errorf("the stream of a descendant: %q, %v", rest, err)
		}
	}
	for _, other := range []*visitor{v, child, grandchild} {
		other.want(401, other.send("POST", webInfo, "{}"))
	}
	for _, url := range unused {
		_, token, _ := strings.Cut(url, "/login#")
		other := s.visitor(t)
		other.want(401, other.send("POST", "/auth/link", tokenBody(token)))
	}
	beside.want(200, beside.send("POST", webInfo, "{}"))
}

// A logout of a descendant ends what descends from it, and not its ancestor.
func TestLogoutOfADescendant(t *testing.T) {
	t.Parallel()
	s, _ := linkSite(t, server.Config{Token: webToken})
	v := s.loggedIn(t, caller.Admin)
	child := s.use(t, v.createsLink())
	grandchild := s.use(t, child.createsLink())
	child.want(200, child.send("POST", "/auth/logout", "{}"))
	child.want(401, child.send("POST", webInfo, "{}"))
	grandchild.want(401, grandchild.send("POST", webInfo, "{}"))
	v.want(200, v.send("POST", webInfo, "{}"))
}

// A browser that uses a link of its own login stays logged in. The earlier cookie is not valid any more, but a logout
// with it ends the new login: a stolen cookie does not become a login that its owner cannot end.
func TestOwnLink(t *testing.T) {
	t.Parallel()
	s, _ := linkSite(t, server.Config{Token: webToken})
	v := s.loggedIn(t, caller.Admin)
	other := s.use(t, v.createsLink())
	before := *v
	_, token, _ := strings.Cut(v.createsLink(), "/login#")
	v.want(200, v.send("POST", "/auth/link", tokenBody(token)))
	if v.cookie.Value == before.cookie.Value {
		t.Fatal("the browser has no new cookie")
	}
	v.want(200, v.send("POST", webInfo, "{}"))
	before.want(401, before.send("POST", webInfo, "{}"))
	other.want(401, other.send("POST", webInfo, "{}"))
	before.want(200, before.send("POST", "/auth/logout", "{}"))
	v.want(401, v.send("POST", webInfo, "{}"))
}

// The generations of links are bounded.
func TestLinkGenerations(t *testing.T) {
	t.Parallel()
	s, _ := linkSite(t, server.Config{Token: webToken})
	v := s.loggedIn(t, caller.Admin)
	for range 16 {
		v = s.use(t, v.createsLink())
	}
	if got := v.send("POST", createLink, "{}"); !strings.Contains(got.body, "LIMIT_EXCEEDED") {
		t.Errorf("one more: %d %s", got.StatusCode, got.body)
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
