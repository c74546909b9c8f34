package server_test

import (
	"encoding/pem"
	"io"
	"log/slog"
	"net/url"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

// Classes of calls by roles.
var (
	reads    = []bridgev1.CallClass{bridgev1.CallClass_CALL_CLASS_READ}
	drives   = append(slices.Clone(reads), bridgev1.CallClass_CALL_CLASS_DRIVE)
	owns     = append(slices.Clone(drives), bridgev1.CallClass_CALL_CLASS_OWN)
	ownsHost = append(slices.Clone(owns), bridgev1.CallClass_CALL_CLASS_HOST)
	operates = append(slices.Clone(ownsHost), bridgev1.CallClass_CALL_CLASS_OPERATE)
)

// wantCaller calls GetServerInfo and compares the caller in its reply. expires says whether the proof expires.
func wantCaller(t *testing.T, conn *grpc.ClientConn, expires bool, want *bridgev1.CallerInfo) {
	t.Helper()
	info, err := bridgev1.NewRuntimeServiceClient(conn).GetServerInfo(t.Context(), &bridgev1.GetServerInfoRequest{})
	if err != nil {
		t.Fatal(err)
	}
	checkCaller(t, info.GetCaller(), expires, want)
}

func checkCaller(t *testing.T, got *bridgev1.CallerInfo, expires bool, want *bridgev1.CallerInfo) {
	t.Helper()
	if at := got.GetExpireTime(); (at != nil) != expires || expires && !at.AsTime().After(time.Now()) {
		t.Errorf("%s: the proof expires at %v", want.GetName(), at)
	}
	if got != nil {
		got.ExpireTime = nil
	}
	if !proto.Equal(got, want) {
		t.Errorf("the caller is %v, want %v", got, want)
	}
}

// The socket and the server's token are of the host's owner.
func TestOwnerIsTold(t *testing.T) {
	t.Parallel()
	r := servertest.Start(t, server.Config{Listen: []string{"unix:" + servertest.SocketPath(t), "127.0.0.1:0"},
		Token: token}, info{})
	owner := &bridgev1.CallerInfo{Tenant: "host", Name: "socket", Proof: bridgev1.CallerProof_CALLER_PROOF_SOCKET,
		Role: bridgev1.Role_ROLE_ADMIN, CallClasses: operates}
	wantCaller(t, r.Conn, false, owner)
	owner.Name, owner.Proof = "server_token", bridgev1.CallerProof_CALLER_PROOF_SERVER_TOKEN
	wantCaller(t, r.Dial(t, 1, grpc.WithPerRPCCredentials(bearer(token))), false, owner)
}

// The members of tenants are told their tenant, their role, their proof and its end, and what they may do.
func TestMembersAreTold(t *testing.T) {
	t.Parallel()
	a, dir := newAuthority(t), t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	cert, key := a.issue(1, "")
	write(t, file("cert"), cert)
	write(t, file("key"), key)
	write(t, file("ca"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
	write(t, file("tokens"), []byte("watcher "+digestOf("watcher")+"\nboxed "+digestOf("boxed")+" expires=2100-01-01T00:00:00Z\n"))
	write(t, file("policy"), []byte(`version: 1
identity: {certificates: true, tokens: tokens}
tenants:
  acme: {members: [{spiffe: 'spiffe://corp/*', role: owner}, {token: watcher, role: observer}]}
  boxed: {members: [{token: boxed, role: owner}], sandbox: [confine]}
`))
	p, err := policy.Open(file("policy"), slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	r := servertest.Start(t, server.Config{Listen: []string{"127.0.0.1:0"}, Policy: p, TLS: &server.TLS{
		CertFile: file("cert"), KeyFile: file("key"), ClientCAFile: file("ca")}}, info{})
	as := func(spiffe, token string) *grpc.ClientConn {
		options := []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(a.client(spiffe)))}
		if token != "" {
			options = append(options, grpc.WithPerRPCCredentials(bearer(token)))
		}
		return r.Dial(t, 0, options...)
	}
	boss := &bridgev1.CallerInfo{Tenant: "acme", Name: "spiffe://corp/boss",
		Proof: bridgev1.CallerProof_CALLER_PROOF_CERTIFICATE, Role: bridgev1.Role_ROLE_OWNER, CallClasses: owns}
	wantCaller(t, as("spiffe://corp/boss", ""), true, boss)
	watcher := &bridgev1.CallerInfo{Tenant: "acme", Name: "watcher", Proof: bridgev1.CallerProof_CALLER_PROOF_STATIC_TOKEN,
		Role: bridgev1.Role_ROLE_OBSERVER, CallClasses: reads}
	wantCaller(t, as("-", "watcher"), false, watcher)
	wantCaller(t, as("spiffe://corp/boss", "watcher"), false, watcher)
	wantCaller(t, as("-", "boxed"), true, &bridgev1.CallerInfo{Tenant: "boxed", Name: "boxed",
		Proof: bridgev1.CallerProof_CALLER_PROOF_STATIC_TOKEN, Role: bridgev1.Role_ROLE_OWNER, CallClasses: ownsHost,
		Confined: true})
}

// A browser has the identity of its login: at an issuer, or of the creator of a link, with the role of the link.
func TestBrowsersAreTold(t *testing.T) {
	t.Parallel()
	told := func(v *visitor) *bridgev1.CallerInfo {
		var info bridgev1.GetServerInfoResponse
		if err := protojson.Unmarshal([]byte(v.want(200, v.send("POST", webInfo, "{}")).body), &info); err != nil {
			t.Fatal(err)
		}
		return info.GetCaller()
	}
	s := startSite(t, server.Config{Token: webToken})
	checkCaller(t, told(s.loggedIn(t, caller.Participant)), true, &bridgev1.CallerInfo{Tenant: "host", Name: "socket",
		Proof: bridgev1.CallerProof_CALLER_PROOF_SOCKET, WebLogin: true, Role: bridgev1.Role_ROLE_PARTICIPANT,
		CallClasses: drives})
	s, p := atIssuer(t, "{client_id: console, client_secret_file: secret, scopes: [groups]}")
	ann := &bridgev1.CallerInfo{Tenant: "acme", Name: "ann", Proof: bridgev1.CallerProof_CALLER_PROOF_JWT,
		Issuer: p.issuer.URL(), Role: bridgev1.Role_ROLE_PARTICIPANT, CallClasses: drives}
	token, err := p.issuer.Token(url.Values{"subject": {"ann"}, "groups": {"agents"}, "audience": {"api"}})
	if err != nil {
		t.Fatal(err)
	}
	resp := fetch(t, s.Running, browser(t, nil), webInfo, token)
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	var info bridgev1.GetServerInfoResponse
	if err != nil || protojson.Unmarshal(body, &info) != nil {
		t.Fatalf("%s: %v", body, err)
	}
	checkCaller(t, info.GetCaller(), true, ann)
	if _, got := p.navigate(p.atTheIssuer(""), "cross-site"); got.StatusCode != 303 {
		t.Fatalf("%s: %s", got.Status, got.body)
	}
	ann.WebLogin = true
	checkCaller(t, told(p.visitor), true, ann)
}
