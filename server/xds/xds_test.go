//go:build xds

package xds_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	rbacfilterv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	_ "github.com/copilot-grpc/copilot-grpc/clients/go/copilotxds"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/controlplane"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
	"github.com/copilot-grpc/copilot-grpc/server/rpc"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

const (
	// byCertificate is a policy that knows one certificate, byEither one that takes tokens too.
	byCertificate = "version: 1\nidentity: {certificates: true}\n" +
		"tenants: {acme: {members: [{spiffe: 'spiffe://corp/member', role: observer}]}}\n"
	byEither = "version: 1\nidentity: {certificates: true, tokens: tokens}\n" +
		"tenants: {acme: {members: [{spiffe: 'spiffe://corp/*', role: observer}, {token: t, role: observer}]}}\n"
	token = "secret-of-the-test"
	// digest is that of the token.
	digest = "t dbfc11ff29b54337dd570dfb5b48404f8c4825bc56feb56162825da5496fccce\n"
)

// backend tells the server's name, and has streams of one frame for each value of its channel.
type backend struct {
	rpc.RuntimeBackend
	rpc.EventBackend
	name   string
	opened chan struct{}
	frames chan struct{}
}

// GetServerInfo implements rpc.RuntimeBackend.
func (b *backend) GetServerInfo(context.Context, *bridgev1.GetServerInfoRequest) (
	*bridgev1.GetServerInfoResponse, error,
) {
	return &bridgev1.GetServerInfoResponse{Version: b.name}, nil
}

// Subscribe implements rpc.EventBackend.
func (b *backend) Subscribe(ctx context.Context, _ *bridgev1.SubscribeRequest, emit frame.Sink) error {
	b.opened <- struct{}{}
	for {
		select {
		case <-b.frames:
			if err := emit(frame.Frame{Message: new(bridgev1.SubscribeResponse)}); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Register serves the backend.
func (b *backend) Register(r grpc.ServiceRegistrar) {
	rpc.NewRuntime(b, nil, nil).Register(r)
	rpc.NewEvent(b, nil).Register(r)
}

// served is a server of a test.
type served struct {
	*servertest.Running
	*backend
	address string
	log     *buffer
	tls     server.TLS
}

// buffer is a log. It is safe for concurrent use.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// serve starts a server with a policy on a unix socket and a TCP port, which has no Listener yet.
func serve(t *testing.T, name, rules string) *served {
	t.Helper()
	return serveWith(t, name, rules, func(*server.Config) {})
}

// serveWith is serve with another configuration.
func serveWith(t *testing.T, name, rules string, change func(*server.Config)) *served {
	t.Helper()
	dir := t.TempDir()
	for file, text := range map[string]string{"policy": rules, "tokens": digest} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p, err := policy.Open(filepath.Join(dir, "policy"), slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	s := &served{log: new(buffer), tls: server.TLS{CertFile: file("server", "cert"), KeyFile: file("server", "key")},
		backend: &backend{name: name, opened: make(chan struct{}, 1), frames: make(chan struct{})}}
	c := server.Config{
		Listen: []string{"unix:" + servertest.SocketPath(t), "127.0.0.1:0"}, XDS: true, Policy: p, TLS: &s.tls,
		Logger: slog.New(slog.NewTextHandler(s.log, nil)),
	}
	change(&c)
	s.Running = servertest.Start(t, c, s.backend)
	s.address = s.Server.Addrs()[1].String()
	return s
}

// await waits until the server takes calls.
func (s *served) await(t *testing.T) *served {
	t.Helper()
	until(t, func() bool { return s.Server.Serving() == nil })
	return s
}

// until polls until holds returns true. It is for conditions without an event to wait for.
func until(t *testing.T, holds func() bool) {
	t.Helper()
	deadline, tick := time.After(30*time.Second), time.NewTicker(20*time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("waited in vain")
		}
	}
}

func dial(t *testing.T, target string, options ...copilot.Option) *copilot.Client {
	t.Helper()
	c, err := copilot.Dial(t.Context(), "xds:///"+target, append(options, copilot.WithoutCheck())...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// who returns the name of the server that takes a call.
func who(ctx context.Context, t *testing.T, c *copilot.Client) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	info, err := c.Runtimes().GetServerInfo(ctx, &bridgev1.GetServerInfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	return info.GetVersion()
}

// code returns the code of a call.
func code(t *testing.T, c *copilot.Client) codes.Code {
	t.Helper()
	_, err := c.Runtimes().GetServerInfo(t.Context(), &bridgev1.GetServerInfoRequest{})
	return status.Code(err)
}

// member sets a cluster whose clients have the certificate of the provider "member".
func member(name string, endpoints ...controlplane.Endpoint) {
	plane.Set(controlplane.Cluster(name, "member", "localhost"), controlplane.Endpoints(name, endpoints...))
}

// Calls go to the cluster that the route says, by header and by method.
func TestRoutes(t *testing.T) {
	t.Parallel()
	a, b := serve(t, "a", byCertificate), serve(t, "b", byCertificate)
	plane.Set(controlplane.Listener(a.address, "server"), controlplane.Listener(b.address, "server"))
	member("routes-a", controlplane.Endpoint{Address: a.address})
	member("routes-b", controlplane.Endpoint{Address: b.address})
	plane.Set(controlplane.Target("routes",
		controlplane.WithHeader(controlplane.ToCluster("/", "routes-b"), "x-team", "b"),
		controlplane.ToCluster("/copilot.bridge.v1.EventService/", "routes-b"),
		controlplane.ToCluster("/", "routes-a")))
	c := dial(t, "routes")
	if got := who(t.Context(), t, c); got != "a" {
		t.Errorf("without a header: %q", got)
	}
	if got := who(metadata.AppendToOutgoingContext(t.Context(), "x-team", "b"), t, c); got != "b" {
		t.Errorf("with the header: %q", got)
	}
	if _, err := c.EventStreams().Subscribe(t.Context(), &bridgev1.SubscribeRequest{}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-b.opened:
	case <-a.opened:
		t.Error("by method: a")
	}
}

// Calls go to the next locality when the first one has no server.
func TestFailover(t *testing.T) {
	t.Parallel()
	a, b := serve(t, "a", byCertificate), serve(t, "b", byCertificate)
	plane.Set(controlplane.Listener(a.address, "server"), controlplane.Listener(b.address, "server"))
	near := controlplane.Endpoint{Address: a.address, Zone: "near"}
	far := controlplane.Endpoint{Address: b.address, Zone: "far", Priority: 1}
	member("failover", near, far)
	plane.Set(controlplane.Target("failover", controlplane.ToCluster("/", "failover")))
	c := dial(t, "failover")
	for range 5 {
		if got := who(t.Context(), t, c); got != "a" {
			t.Errorf("with both: %q", got)
		}
	}
	if err := a.Stop(); err != nil {
		t.Error(err)
	}
	until(t, func() bool { return who(t.Context(), t, c) == "b" })
}

// A draining server and a removed one get no new calls, and their streams go on.
func TestDraining(t *testing.T) {
	t.Parallel()
	for name, without := range map[string]func(leaving, staying controlplane.Endpoint) []controlplane.Endpoint{
		"draining": func(leaving, staying controlplane.Endpoint) []controlplane.Endpoint {
			leaving.Health = corev3.HealthStatus_DRAINING
			return []controlplane.Endpoint{leaving, staying}
		},
		"removed": func(_, staying controlplane.Endpoint) []controlplane.Endpoint {
			staying.Priority = 0 // a gap would be an error of the control plane
			return []controlplane.Endpoint{staying}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := serve(t, "a", byCertificate), serve(t, "b", byCertificate)
			plane.Set(controlplane.Listener(a.address, "server"), controlplane.Listener(b.address, "server"))
			leaving := controlplane.Endpoint{Address: a.address, Zone: "near"}
			staying := controlplane.Endpoint{Address: b.address, Zone: "far", Priority: 1}
			member(name, leaving, staying)
			plane.Set(controlplane.Target(name, controlplane.ToCluster("/", name)))
			c := dial(t, name)
			who(t.Context(), t, c)
			stream := a.stream(t, c)
			member(name, without(leaving, staying)...)
			until(t, func() bool { return who(t.Context(), t, c) == "b" })
			a.frame(t, stream)
		})
	}
}

// stream opens a stream of the server.
func (s *served) stream(t *testing.T, c *copilot.Client) grpc.ServerStreamingClient[bridgev1.SubscribeResponse] {
	t.Helper()
	stream, err := c.EventStreams().Subscribe(t.Context(), &bridgev1.SubscribeRequest{})
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.opened:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s has no stream", s.name)
	}
	return stream
}

// frame fails the test unless a frame of the server arrives.
func (s *served) frame(t *testing.T, stream grpc.ServerStreamingClient[bridgev1.SubscribeResponse]) {
	t.Helper()
	go func() { s.frames <- struct{}{} }()
	if _, err := stream.Recv(); err != nil {
		t.Errorf("the stream of %s has ended: %v", s.name, err)
	}
}

// The policy knows callers by the certificates that the control plane gives them.
func TestCertificatesOfTheMesh(t *testing.T) {
	t.Parallel()
	s := serve(t, "s", byCertificate)
	plane.Set(controlplane.Listener(s.address, "server"))
	target := func(name, provider, serverName string, options ...copilot.Option) *copilot.Client {
		plane.Set(controlplane.Cluster(name, provider, serverName),
			controlplane.Endpoints(name, controlplane.Endpoint{Address: s.address}),
			controlplane.Target(name, controlplane.ToCluster("/", name)))
		return dial(t, name, options...)
	}
	s.await(t)
	known := target("known", "member", "localhost")
	info, err := known.Runtimes().GetServerInfo(t.Context(), &bridgev1.GetServerInfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if by := info.GetCaller().GetProof(); by != bridgev1.CallerProof_CALLER_PROOF_CERTIFICATE {
		t.Errorf("the caller is known by %v", by)
	}
	for name, tc := range map[string]struct {
		client *copilot.Client
		want   codes.Code
	}{
		"another certificate": {target("another", "stranger", "localhost"), codes.PermissionDenied},
		"another server":      {target("imposter", "member", "elsewhere"), codes.Unavailable},
		"no certificate":      {target("none", "", "", copilot.WithCAFile(file("server", "ca")), copilot.WithServerName("localhost")), codes.Unavailable},
		"plain text":          {target("plain", "", "", copilot.WithInsecure()), codes.Unavailable},
	} {
		if got := code(t, tc.client); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	// The server's own TLS has no CA of clients, which does not matter. Its revocation lists do.
	stream := s.stream(t, known)
	own := s.tls
	if err := s.tune(own); err != nil {
		t.Fatal(err)
	}
	s.frame(t, stream)
	list, err := ca.revoke(2)
	if err != nil {
		t.Fatal(err)
	}
	own.ClientCAFile, own.ClientCRLFile = file("server", "ca"), filepath.Join(t.TempDir(), "crl")
	if err := os.WriteFile(own.ClientCRLFile, list, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.tune(own); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Errorf("the stream of a revoked certificate: %v", err)
	}
	until(t, func() bool { return code(t, known) == codes.Unavailable })
}

// tune changes the server's own TLS.
func (s *served) tune(own server.TLS) error { return s.Server.Tune(server.Tuning{TLS: &own}) }

// Where the control plane configures no TLS, the server's own applies, and the policy may require a certificate.
func TestOwnTLS(t *testing.T) {
	t.Parallel()
	strict, open := serve(t, "strict", byCertificate), serve(t, "open", byEither)
	for _, s := range []*served{strict, open} {
		plane.Set(controlplane.Listener(s.address, ""), controlplane.Cluster(s.name, "", ""),
			controlplane.Endpoints(s.name, controlplane.Endpoint{Address: s.address}),
			controlplane.Target(s.name, controlplane.ToCluster("/", s.name)))
		s.await(t)
	}
	options := []copilot.Option{copilot.WithCAFile(file("server", "ca")), copilot.WithServerName("localhost"),
		copilot.WithToken(token)}
	if got := who(t.Context(), t, dial(t, "open", options...)); got != "open" {
		t.Error(got)
	}
	if got := code(t, dial(t, "strict", options...)); got != codes.Unavailable {
		t.Errorf("without a certificate: %v", got)
	}
}

// The filters of the control plane see the certificates of callers.
func TestRBAC(t *testing.T) {
	t.Parallel()
	s := serve(t, "s", byEither)
	deny := &rbacv3.RBAC{Action: rbacv3.RBAC_DENY, Policies: map[string]*rbacv3.Policy{"strangers": {
		Permissions: []*rbacv3.Permission{{Rule: &rbacv3.Permission_Any{Any: true}}},
		Principals: []*rbacv3.Principal{{Identifier: &rbacv3.Principal_Authenticated_{
			Authenticated: &rbacv3.Principal_Authenticated{PrincipalName: &matcherv3.StringMatcher{
				MatchPattern: &matcherv3.StringMatcher_Exact{Exact: spiffe + "stranger"}}}}}},
	}}}
	plane.Set(controlplane.Listener(s.address, "server", controlplane.Filter("rbac", &rbacfilterv3.RBAC{Rules: deny})))
	s.await(t)
	for provider, want := range map[string]codes.Code{"member": codes.OK, "stranger": codes.PermissionDenied} {
		name := "rbac-" + provider
		plane.Set(controlplane.Cluster(name, provider, "localhost"),
			controlplane.Endpoints(name, controlplane.Endpoint{Address: s.address}),
			controlplane.Target(name, controlplane.ToCluster("/", name)))
		if got := code(t, dial(t, name)); got != want {
			t.Errorf("%s: %v, want %v", provider, got, want)
		}
	}
}

// Each TCP address has a Listener of its own. The unix socket and the listener for browsers need none.
func TestAddresses(t *testing.T) {
	t.Parallel()
	s := serveWith(t, "s", byEither, func(c *server.Config) {
		c.Listen = append(c.Listen, "127.0.0.1:0")
		c.Web = &server.Web{Listen: "127.0.0.1:0"}
	})
	second := s.Server.Addrs()[2].String()
	plane.Set(controlplane.Listener(s.address, "server"), controlplane.Target("addresses",
		controlplane.ToCluster("/", "addresses")))
	member("addresses", controlplane.Endpoint{Address: s.address})
	who(t.Context(), t, dial(t, "addresses"))
	if err := s.Server.Serving(); err == nil || !strings.Contains(err.Error(), second) {
		t.Errorf("without a Listener for %s: %v", second, err)
	}
	for name, c := range map[string]func() (*copilot.Client, error){
		"unix": func() (*copilot.Client, error) {
			return copilot.Dial(t.Context(), "unix:"+s.Server.Addrs()[0].String(), copilot.WithoutCheck())
		},
		"second": func() (*copilot.Client, error) {
			return copilot.Dial(t.Context(), second, copilot.WithCAFile(file("server", "ca")), copilot.WithoutCheck(),
				copilot.WithServerName("localhost"), copilot.WithToken(token))
		},
	} {
		client, err := c()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		if got := code(t, client); (got == codes.OK) != (name == "unix") {
			t.Errorf("%s: %v", name, got)
		}
	}
	web(t, s)
	plane.Set(controlplane.Listener(second, "server"))
	s.await(t)
}

// web calls by the listener for browsers.
func web(t *testing.T, s *served) {
	t.Helper()
	text, err := os.ReadFile(file("server", "ca"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "localhost"}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+s.Server.WebAddr().String()+
		bridgev1.RuntimeService_GetServerInfo_FullMethodName, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+token)
	reply, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = reply.Body.Close()
	if reply.StatusCode != http.StatusOK {
		t.Errorf("for browsers: %s", reply.Status)
	}
}

// The server's own limits apply to the connections.
func TestLimits(t *testing.T) {
	t.Parallel()
	few := strings.Replace(byCertificate, "]}}", "], limits: {caller_connections: 1}}}", 1)
	old := func(c *server.Config) { c.Connections.MaxAge, c.Connections.AgeGrace = time.Second, time.Millisecond }
	for name, s := range map[string]*served{"few": serve(t, "few", few), "old": serveWith(t, "old", byCertificate, old)} {
		plane.Set(controlplane.Listener(s.address, "server"), controlplane.Target(name, controlplane.ToCluster("/", name)))
		member(name, controlplane.Endpoint{Address: s.address})
		s.await(t)
		c := dial(t, name)
		stream := s.stream(t, c)
		if name == "few" {
			if got := code(t, dial(t, name)); got != codes.ResourceExhausted {
				t.Errorf("a second connection: %v", got)
			}
			continue
		}
		if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("a stream of an old connection: %v", err)
		}
	}
}

// Without a Listener a server takes no calls over TCP, says so, and is not ready. Open streams go on.
func TestNoListener(t *testing.T) {
	t.Parallel()
	s := serve(t, "s", byCertificate)
	healthy := func() healthv1.HealthCheckResponse_ServingStatus {
		reply, err := healthv1.NewHealthClient(s.Conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return reply.GetStatus()
	}
	const why = `msg="no calls are taken: the control plane has not configured the address" address=`
	until(t, func() bool { return strings.Contains(s.log.String(), why+s.address) })
	if err := s.Server.Serving(); err == nil || !strings.Contains(err.Error(), s.address+" takes no calls: ") {
		t.Errorf("Serving = %v", err)
	}
	if got := healthy(); got != healthv1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("without a Listener: %v", got)
	}
	plane.Set(controlplane.Listener(s.address, "server"))
	until(t, func() bool { return healthy() == healthv1.HealthCheckResponse_SERVING })
	member("listener", controlplane.Endpoint{Address: s.address})
	plane.Set(controlplane.Target("listener", controlplane.ToCluster("/", "listener")))
	c := dial(t, "listener")
	who(t.Context(), t, c)
	stream := s.stream(t, c)
	plane.Delete(controlplane.ServerPrefix + s.address)
	until(t, func() bool { return healthy() == healthv1.HealthCheckResponse_NOT_SERVING })
	s.frame(t, stream)
	if strings.Count(s.log.String(), why) != 2 {
		t.Errorf("the log does not say once more that the Listener is missing:\n%s", s.log)
	}
	plane.Set(controlplane.Listener(s.address, "server"))
	who(t.Context(), t, c)
	s.frame(t, stream)
}
