package app

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/internal/devissuer"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

// certified is a certificate with its key.
type certified struct {
	*x509.Certificate
	key *ecdsa.PrivateKey
}

// certify returns a certificate that signer signs, or itself. It is one of a server unless change makes another of it.
func certify(t *testing.T, signer *certified, change func(*x509.Certificate)) *certified {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "one"}, DNSNames: []string{"a.example"},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(100 * 24 * time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	change(c)
	by := &certified{c, key}
	if signer != nil {
		by = signer
	}
	der, err := x509.CreateCertificate(rand.Reader, c, by.Certificate, key.Public(), by.key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &certified{parsed, key}
}

// authority makes a certificate one of a CA of that name.
func authority(name string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.Subject, c.DNSNames, c.ExtKeyUsage = pkix.Name{CommonName: name}, nil, nil
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage = true, true, x509.KeyUsageCertSign|x509.KeyUsageCRLSign
	}
}

// inPEM writes certificates, keys or revocation lists to a file.
func inPEM(t *testing.T, parts ...any) string {
	t.Helper()
	var text []byte
	for _, part := range parts {
		var block pem.Block
		switch p := part.(type) {
		case *certified:
			block = pem.Block{Type: "CERTIFICATE", Bytes: p.Raw}
		case *ecdsa.PrivateKey:
			der, err := x509.MarshalPKCS8PrivateKey(p)
			if err != nil {
				t.Fatal(err)
			}
			block = pem.Block{Type: "PRIVATE KEY", Bytes: der}
		case []byte:
			block = pem.Block{Type: "X509 CRL", Bytes: p}
		}
		text = append(text, pem.EncodeToMemory(&block)...)
	}
	path := filepath.Join(t.TempDir(), "file.pem")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// revocations returns a revocation list that is valid from and to times from now.
func revocations(t *testing.T, ca *certified, from, to time.Duration) []byte {
	t.Helper()
	der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		Number: big.NewInt(1), ThisUpdate: time.Now().Add(from), NextUpdate: time.Now().Add(to),
	}, ca.Certificate, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// Doctor tells of the dates, the chain and the names of certificates, and of the dates of revocation lists.
func TestDoctorTellsOfCertificates(t *testing.T) {
	t.Parallel()
	nothing := func(*x509.Certificate) {}
	until := func(days int) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.NotAfter = time.Now().Add(time.Duration(days)*24*time.Hour + time.Hour) }
	}
	root := certify(t, nil, authority("root"))
	middle := certify(t, root, authority("middle"))
	own := certify(t, nil, nothing)
	oldCA := certify(t, nil, func(c *x509.Certificate) { authority("old")(c); until(-1)(c) })
	const ok, look, wrong = runtime.LevelOK, runtime.LevelWarning, runtime.LevelError
	leaf := func(signer *certified, change func(*x509.Certificate)) []any {
		return []any{certify(t, signer, change)}
	}
	for name, tc := range map[string]struct {
		chain   []any
		setting string
		file    []any
		level   runtime.Level
		says    string
	}{
		"a chain": {append(leaf(middle, nothing), middle, root), "", nil, ok, `for a.example; clients need its CA, "CN=root"`},
		"an address": {leaf(nil, func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)} }), "", nil, ok,
			"for a.example, 127.0.0.1"},
		"expired":        {leaf(nil, until(-1)), "", nil, wrong, "has expired at "},
		"expires soon":   {leaf(nil, until(13)), "", nil, look, "expires at "},
		"not very soon":  {leaf(nil, until(14)), "", nil, ok, "is valid until "},
		"a chain's part": {append(leaf(oldCA, nothing), oldCA), "", nil, wrong, "has expired at "},
		"of the future": {leaf(nil, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Hour) }), "", nil, wrong,
			"is not valid before "},
		"another chain": {append(leaf(middle, nothing), root), "", nil, wrong, "signed by unknown authority"},
		"for clients": {leaf(nil, func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
		}), "", nil, wrong, "incompatible key usage"},
		"no names": {leaf(nil, func(c *x509.Certificate) { c.DNSNames = nil }), "", nil, wrong, "has no names"},

		"a CA of clients":  {[]any{own}, "tls_client_ca", []any{root}, ok, "is valid until "},
		"an expired CA":    {[]any{own}, "tls_client_ca", []any{root, oldCA}, wrong, "has expired at "},
		"a list":           {[]any{own}, "tls_client_crl", []any{revocations(t, root, -2*time.Hour, time.Hour)}, ok, "is valid until "},
		"an outdated list": {[]any{own}, "tls_client_crl", []any{revocations(t, root, -2*time.Hour, -time.Hour)}, wrong, "has expired at "},
		"a list and an old": {[]any{own}, "tls_client_crl", []any{
			revocations(t, root, -3*time.Hour, -time.Hour), revocations(t, root, -2*time.Hour, time.Hour),
		}, ok, "is valid until "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := Config{TLSCert: inPEM(t, tc.chain...), TLSKey: inPEM(t, tc.chain[0].(*certified).key)}
			subject := "tls_cert"
			switch tc.setting {
			case "tls_client_ca":
				subject, c.TLSClientCA = tc.setting, inPEM(t, tc.file...)
			case "tls_client_crl":
				subject, c.TLSClientCA, c.TLSClientCRL = tc.setting, inPEM(t, root), inPEM(t, tc.file...)
			}
			f := findingOf(c.fileFindings(t.Context()), subject)
			if f.Level != tc.level || !strings.Contains(f.Text, tc.says) || tc.level != ok && f.Remedy == "" {
				t.Errorf("doctor says %+v, want %s, %q", f, tc.level, tc.says)
			}
		})
	}
}

// Doctor tells of a key that is not the certificate's, and of one that other users can read.
func TestDoctorTellsOfKeys(t *testing.T) {
	t.Parallel()
	one, other := certify(t, nil, func(*x509.Certificate) {}), certify(t, nil, func(*x509.Certificate) {})
	c := Config{TLSCert: inPEM(t, one), TLSKey: inPEM(t, other.key)}
	f := findingOf(c.fileFindings(t.Context()), "tls_cert")
	if f.Level != runtime.LevelError || !strings.Contains(f.Text, "private key does not match") || !strings.Contains(f.Remedy, "(tls_key)") {
		t.Errorf("another key: doctor says %+v", f)
	}
	c.TLSKey = inPEM(t, one.key)
	if err := os.Chmod(c.TLSKey, 0o644); err != nil {
		t.Fatal(err)
	}
	f = findingOf(c.permissionFindings(c.trustedPaths()), "permissions")
	if f.Level == runtime.LevelOK || !strings.Contains(f.Text, "tls_key: "+strconv.Quote(c.TLSKey)) || !strings.Contains(f.Remedy, "chmod") {
		t.Errorf("a key that others can read: doctor says %+v", f)
	}
}

// Doctor fetches the keys of each issuer of the policy, and asks the issuer of logins for its endpoints.
func TestDoctorTellsOfIssuers(t *testing.T) {
	t.Parallel()
	good, err := devissuer.New(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- good.Run(t.Context()) }()
	t.Cleanup(func() { <-served })
	var noLogins *httptest.Server
	noLogins = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/keys") {
			fmt.Fprint(w, `{"keys": []}`)
			return
		}
		fmt.Fprintf(w, `{"issuer": %q, "jwks_uri": %q}`, noLogins.URL, noLogins.URL+"/keys")
	}))
	defer noLogins.Close()
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	const login = ", login: {client_id: console}"
	for name, tc := range map[string]struct {
		url, login, says string
		level            runtime.Level
	}{
		"good":        {good.URL(), login, "answers, and its keys can be read", runtime.LevelOK},
		"away":        {away.URL, "", "connection refused", runtime.LevelError},
		"no logins":   {noLogins.URL, login, "offers no logins", runtime.LevelError},
		"none wanted": {noLogins.URL, "", "answers", runtime.LevelOK},
	} {
		path := filepath.Join(t.TempDir(), "policy.yaml")
		text := fmt.Sprintf("version: 1\nidentity: {oidc: [{issuer: %q, audiences: [a], insecure_http: true%s}]}\n"+
			"tenants: {acme: {members: [{issuer: %q, subject: s, role: owner}]}}\n", tc.url, tc.login, tc.url)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c := Config{Policy: path}
		found := c.fileFindings(t.Context())
		f := findingOf(found, "issuer")
		if f.Level != tc.level || !strings.Contains(f.Text, tc.says) || !strings.Contains(f.Text, tc.url) ||
			findingOf(found, "policy").Level != runtime.LevelOK {
			t.Errorf("%s: doctor says %+v, want %q", name, found, tc.says)
		}
	}
}

// Doctor asks the address of each provider whether it answers, without secrets.
func TestDoctorTellsOfProviders(t *testing.T) {
	t.Parallel()
	asked := make(chan *http.Request, 1)
	good := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer good.Close()
	away := httptest.NewServer(http.NotFoundHandler())
	away.Close()
	for name, tc := range map[string]struct {
		url, says string
		level     runtime.Level
	}{
		"good":     {strings.Replace(good.URL, "http://", "http://user:secret@", 1) + "/v1?key=secret", good.URL + "/v1 answers", runtime.LevelOK},
		"away":     {away.URL + "?key=secret", "connection refused", runtime.LevelWarning},
		"no URL":   {"somewhere", "is not a URL", runtime.LevelWarning},
		"no place": {"", "is a JSON object", runtime.LevelOK},
	} {
		path := filepath.Join(t.TempDir(), "p.json")
		if err := os.WriteFile(path, fmt.Appendf(nil, `{"baseUrl": %q, "apiKey": "secret"}`, tc.url), 0o600); err != nil {
			t.Fatal(err)
		}
		c := Config{Providers: map[string]string{"p": path}}
		f := findingOf(c.fileFindings(t.Context()), "provider p")
		if f.Level != tc.level || !strings.Contains(f.Text, tc.says) || strings.Contains(f.Text+f.Remedy, "secret") {
			t.Errorf("%s: doctor says %+v, want %q", name, f, tc.says)
		}
	}
	if r := <-asked; strings.Contains(fmt.Sprint(r.URL, r.Header), "secret") || r.Header.Get("Authorization") != "" {
		t.Errorf("the provider was asked for %s with %v", r.URL, r.Header)
	}
}

// Doctor tells whether the sandbox of each tenant is installed, and whether processes of its user can be started.
func TestDoctorTellsOfTenants(t *testing.T) {
	t.Parallel()
	const missing = "no-such-sandbox"
	for name, tc := range map[string]struct {
		tenant policy.Tenant
		says   string
	}{
		"nothing":      {policy.Tenant{}, ""},
		"installed":    {policy.Tenant{Sandbox: []string{os.Args[0]}}, ""},
		"beside a CLI": {policy.Tenant{Sandbox: []string{"{bin}/sandbox"}}, ""},
		"missing":      {policy.Tenant{Sandbox: []string{missing, "{home}"}}, missing},
		"own user":     {policy.Tenant{User: &policy.User{UID: uint32(os.Geteuid())}}, ""},
	} {
		found := tenantFindings("acme", tc.tenant)
		if len(found) != len(strings.Fields(tc.says)) || tc.says != "" && (found[0].Level != runtime.LevelError ||
			found[0].Subject != "tenant acme" || !strings.Contains(found[0].Text, tc.says)) {
			t.Errorf("%s: doctor says %+v, want %q", name, found, tc.says)
		}
	}
	found := tenantFindings("acme", policy.Tenant{User: &policy.User{UID: 1 << 20}})
	if root := os.Geteuid() == 0; root != (len(found) == 0) || !root && found[0].Level != runtime.LevelWarning {
		t.Errorf("another user, as root %t: doctor says %+v", root, found)
	}
}
