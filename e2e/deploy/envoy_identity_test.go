package deploy

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/devissuer"
)

// clientCA signs client certificates.
type clientCA struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// lifetime is that of certificates; an hour by default.
	lifetime time.Duration
}

func newClientCA(t *testing.T, name string) *clientCA {
	t.Helper()
	ca := &clientCA{t: t, cert: &x509.Certificate{IsCA: true, BasicConstraintsValid: true,
		Subject: pkix.Name{CommonName: name}}}
	ca.cert, ca.key = ca.sign(ca.cert)
	return ca
}

// sign signs a certificate, the CA's own if it has no key yet.
func (ca *clientCA) sign(c *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey) {
	ca.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		ca.t.Fatal(err)
	}
	by := ca.key
	if by == nil {
		by = key
	}
	c.SerialNumber, c.NotBefore = big.NewInt(time.Now().UnixNano()), time.Now().Add(-time.Minute)
	if ca.lifetime == 0 {
		ca.lifetime = time.Hour
	}
	c.NotAfter = time.Now().Add(ca.lifetime)
	der, err := x509.CreateCertificate(rand.Reader, c, ca.cert, key.Public(), by)
	if err == nil {
		c, err = x509.ParseCertificate(der)
	}
	if err != nil {
		ca.t.Fatal(err)
	}
	return c, key
}

// client is a client certificate with a SPIFFE id or else a DNS name, and a common name.
func (ca *clientCA) client(name, common string) tls.Certificate {
	ca.t.Helper()
	c := &x509.Certificate{Subject: pkix.Name{CommonName: common},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if u, err := url.Parse(name); err == nil && u.Scheme != "" {
		c.URIs = []*url.URL{u}
	} else {
		c.DNSNames = []string{name}
	}
	c, key := ca.sign(c)
	return tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key, Leaf: c}
}

// pemOf is a certificate in PEM.
func pemOf(c *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
}

// conn is a connection with client certificates.
func (f *fronted) conn(address string, certificates ...tls.Certificate) *grpc.ClientConn {
	f.T.Helper()
	conn, err := grpc.NewClient(address, grpc.WithDisableRetry(), grpc.WithTransportCredentials(credentials.NewTLS(
		&tls.Config{RootCAs: f.roots, ServerName: "localhost", Certificates: certificates})))
	if err != nil {
		f.T.Fatal(err)
	}
	f.T.Cleanup(func() { _ = conn.Close() })
	return conn
}

// told is the caller that GetServerInfo reports to a call with metadata.
func (f *fronted) told(conn *grpc.ClientConn, md ...string) (*bridgev1.CallerInfo, error) {
	ctx := metadata.AppendToOutgoingContext(f.Ctx, md...)
	info, err := bridgev1.NewRuntimeServiceClient(conn).GetServerInfo(ctx, &bridgev1.GetServerInfoRequest{})
	return info.GetCaller(), err
}

// newMutual starts a server that believes the certificates that Envoy forwards, and Envoy, whose certificate is of a CA
// of its own. changes are edits of Envoy's file.
func newMutual(t *testing.T, callers *clientCA, changes map[string]string) *fronted {
	t.Helper()
	f := prepared(t, time.Minute)
	proxies := newClientCA(t, "proxies")
	envoy := proxies.client("envoy.example.com", "")
	key, err := x509.MarshalPKCS8PrivateKey(envoy.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	harness.WriteFiles(t, f.dir, map[string]string{
		"callers-ca.pem": pemOf(callers.cert), "envoy-ca.pem": pemOf(proxies.cert), "client.pem": pemOf(envoy.Leaf),
		"client-key.pem": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})),
		"policy.yaml": `version: 1
identity: {certificates: true, tokens: tokens, trust_domains: [corp.example], proxies: [{dns: envoy.example.com}]}
tenants:
  acme:
    members:
      - {spiffe: "spiffe://corp.example/agents/*", role: participant}
      - {dns: watcher.example.com, role: observer}
  host: {members: [{token: op, role: admin}]}
`,
	})
	all := map[string]string{
		"# validation_context: {trusted_ca": "validation_context: {trusted_ca",
		"          # tls_certificates:":     "          tls_certificates:",
		"          # - certificate_chain":   "          - certificate_chain",
		"          #   private_key":         "            private_key",
	}
	for from, to := range changes {
		all[from] = to
	}
	f.start(harness.NewScripted(t), time.Second, all, "--tls-client-ca", filepath.Join(f.dir, "envoy-ca.pem"))
	return f
}

// Callers have the rights of the client certificates that Envoy verifies and forwards, and nothing by a header of their
// own.
func TestBehindEnvoyCertificates(t *testing.T) {
	t.Parallel()
	callers := newClientCA(t, "callers")
	f := newMutual(t, callers, nil)
	callers.lifetime = time.Minute // ends before Envoy's certificate
	agent, watcher := callers.client("spiffe://corp.example/agents/a", "agent"), callers.client("watcher.example.com", "")
	const uri = "URI=spiffe://corp.example/agents/a"
	forged := []string{"x-forwarded-client-cert", "Hash=ab;" + uri}
	const through = " through envoy.example.com"
	for name, tc := range map[string]struct {
		conn *grpc.ClientConn
		md   []string
		want string
		role bridgev1.Role
		code codes.Code
	}{
		"an agent": {f.conn(f.address, agent), nil, "spiffe://corp.example/agents/a" + through,
			bridgev1.Role_ROLE_PARTICIPANT, 0},
		"a watcher":                {f.conn(f.address, watcher), nil, "watcher.example.com" + through, bridgev1.Role_ROLE_OBSERVER, 0},
		"a watcher with a header":  {f.conn(f.address, watcher), forged, "watcher.example.com" + through, bridgev1.Role_ROLE_OBSERVER, 0},
		"no certificate":           {f.conn(f.address), nil, "", 0, codes.Unauthenticated},
		"a header alone":           {f.conn(f.address), forged, "", 0, codes.Unauthenticated},
		"no member":                {f.conn(f.address, callers.client("other.example.com", "")), nil, "", 0, codes.PermissionDenied},
		"Envoy's name":             {f.conn(f.address, callers.client("envoy.example.com", "")), nil, "", 0, codes.Unauthenticated},
		"another trust domain":     {f.conn(f.address, callers.client("spiffe://other.example/agents/a", "")), nil, "", 0, codes.Unauthenticated},
		"an element in a name":     {f.conn(f.address, callers.client("watcher.example.com,"+uri, "")), nil, "", 0, codes.Unauthenticated},
		"a URI in a name":          {f.conn(f.address, callers.client("watcher.example.com;"+uri, "")), nil, "", 0, codes.Unauthenticated},
		"another CA":               {f.conn(f.address, newClientCA(t, "callers").client("watcher.example.com", "")), nil, "", 0, codes.Unavailable},
		"a token":                  {f.conn(f.address, agent), []string{"authorization", bearer[1]}, "op", bridgev1.Role_ROLE_ADMIN, 0},
		"not through Envoy":        {f.conn(f.listen, agent), nil, "", 0, codes.Unauthenticated}, // a CA that the server does not know
		"a header, without Envoy":  {f.conn(f.listen), forged, "", 0, codes.Unauthenticated},
		"a token and that, direct": {f.conn(f.listen), append(forged, "authorization", bearer[1]), "op", bridgev1.Role_ROLE_ADMIN, 0},
	} {
		got, err := f.told(tc.conn, tc.md...)
		if status.Code(err) != tc.code || got.GetName() != tc.want || got.GetRole() != tc.role {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if end := got.GetExpireTime().AsTime(); name == "an agent" && !end.Equal(agent.Leaf.NotAfter) {
			t.Errorf("the agent's certificate ends at %v, and not at %v", end, agent.Leaf.NotAfter)
		}
	}
	for _, major := range []int{1, 2} {
		c := f.browser(major)
		c.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{watcher}
		resp := f.request(c, "/copilot.bridge.v1.RuntimeService/GetServerInfo", "{}", forged...)
		text, err := io.ReadAll(resp.Body)
		if err != nil || !strings.Contains(string(text), "watcher.example.com"+through) {
			t.Errorf("by HTTP/%d: %s, %v\n%s", major, resp.Status, err, text)
		}
	}
}

// A token that Envoy verifies reaches the server, which verifies it too.
func TestBehindEnvoyTokens(t *testing.T) {
	t.Parallel()
	f := prepared(t, time.Minute)
	issuer, err := devissuer.New(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- issuer.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	token := func(audience string) string {
		text, err := issuer.Token(url.Values{"subject": {"ann"}, "audience": {audience}})
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	resp, err := http.Get(issuer.URL() + "/keys")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	keys, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	filter := harness.Edited(t, "../../deploy/envoy/jwt-authn.yaml", map[string]string{
		"https://login.corp.example": issuer.URL(), "/etc/envoy/": f.dir + "/",
		"[copilot-grpc]": "[copilot-grpc, another-service]",
	})
	const before = "          - name: envoy.filters.http.local_ratelimit\n"
	filter = strings.ReplaceAll("\n"+strings.TrimSpace(filter), "\n", "\n          ")[1:] + "\n" + before
	harness.WriteFiles(t, f.dir, map[string]string{"jwks.json": string(keys), "policy.yaml": `version: 1
identity: {tokens: tokens, oidc: [{issuer: "` + issuer.URL() + `", audiences: [copilot-grpc], insecure_http: true}]}
tenants:
  acme: {members: [{issuer: "` + issuer.URL() + `", subject: ann, role: participant}]}
  host: {members: [{token: op, role: admin}]}
`})
	f.token = token("copilot-grpc")
	f.start(harness.NewScripted(t), time.Second, map[string]string{before: filter})
	conn := f.conn(f.address)
	for name, tc := range map[string]struct {
		token string
		code  codes.Code
		envoy bool // says no
	}{
		"a token":               {f.token, 0, false},
		"none":                  {"", codes.Unauthenticated, true},
		"a static token":        {operatorToken, codes.Unauthenticated, true},
		"a broken signature":    {f.token[:len(f.token)-8] + "AAAAAAAA", codes.Unauthenticated, true},
		"for Envoy, not for us": {token("another-service"), codes.Unauthenticated, false},
	} {
		var md []string
		if tc.token != "" {
			md = []string{"authorization", "Bearer " + tc.token}
		}
		got, err := f.told(conn, md...)
		if status.Code(err) != tc.code || strings.Contains(status.Convert(err).Message(), "Jwt") != tc.envoy {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if err == nil && (got.GetName() != "ann" || got.GetProof() != bridgev1.CallerProof_CALLER_PROOF_JWT) {
			t.Errorf("%s: %v", name, got)
		}
	}
}
