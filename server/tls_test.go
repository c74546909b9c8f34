package server_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	grpcstatus "google.golang.org/grpc/status"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

// authority is a CA of a test.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

// issue makes a certificate with a serial number, in PEM.
func (a *authority) issue(serial int64, spiffe string) (cert, key []byte) {
	a.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if spiffe != "" {
		id, err := url.Parse(spiffe)
		if err != nil {
			a.t.Fatal(err)
		}
		leaf.URIs = []*url.URL{id}
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, a.cert, private.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
		Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// client are the credentials of a client, with a certificate unless spiffe is "-".
func (a *authority) client(spiffe string) *tls.Config {
	a.t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	c := &tls.Config{RootCAs: pool, ServerName: "localhost", MinVersion: tls.VersionTLS12}
	if spiffe != "-" {
		pair, err := tls.X509KeyPair(a.issue(100, spiffe))
		if err != nil {
			a.t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}

func TestTLSWithCertificates(t *testing.T) {
	t.Parallel()
	a, stranger, dir := newAuthority(t), newAuthority(t), t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	cert, key := a.issue(1, "")
	write(t, file("cert"), cert)
	write(t, file("key"), key)
	write(t, file("ca"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
	write(t, file("policy"), []byte("version: 1\nidentity: {certificates: true}\ntenants: {acme: {members: [{spiffe: "+
		"'spiffe://corp/a', role: observer}]}}\n"))
	p, err := policy.Open(file("policy"), slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	r := servertest.Start(t, server.Config{
		Listen: []string{"unix:" + servertest.SocketPath(t), "0.0.0.0:0"}, Policy: p,
		TLS: &server.TLS{CertFile: file("cert"), KeyFile: file("key"), ClientCAFile: file("ca")},
	}, info{})
	_, port, err := net.SplitHostPort(r.Server.Addrs()[1].String())
	if err != nil {
		t.Fatal(err)
	}
	call := func(c *tls.Config) (codes.Code, int64) {
		serial := int64(0)
		c.VerifyConnection = func(s tls.ConnectionState) error {
			serial = s.PeerCertificates[0].SerialNumber.Int64()
			return nil
		}
		conn, err := grpc.NewClient("passthrough:///127.0.0.1:"+port,
			grpc.WithTransportCredentials(credentials.NewTLS(c)))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close() //nolint:errcheck // only the call counts
		_, err = bridgev1.NewRuntimeServiceClient(conn).GetServerInfo(t.Context(), &bridgev1.GetServerInfoRequest{})
		return grpcstatus.Code(err), serial
	}
	foreign := stranger.client("spiffe://corp/a")
	foreign.RootCAs = a.client("-").RootCAs
	for name, tc := range map[string]struct {
		config *tls.Config
		want   codes.Code
	}{
		"member":         {a.client("spiffe://corp/a"), codes.OK},
		"nobody's":       {a.client("spiffe://corp/b"), codes.PermissionDenied},
		"no SPIFFE id":   {a.client(""), codes.PermissionDenied},
		"no certificate": {a.client("-"), codes.Unavailable},
		"another CA's":   {foreign, codes.Unavailable},
	} {
		if got, _ := call(tc.config); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
	serves(t, r) // on the socket, without TLS
	// That there has to be a certificate is seen in the handshake, as the policy says now.
	write(t, file("tokens"), []byte("one "+strings.Repeat("5", 64)+"\n"))
	for text, want := range map[string]codes.Code{
		"{certificates: true, tokens: tokens}": codes.Unauthenticated, "{certificates: true}": codes.Unavailable,
	} {
		write(t, file("policy"), []byte("version: 1\nidentity: "+text+"\ntenants: {acme: {members: [{spiffe: "+
			"'spiffe://corp/a', role: observer}]}}\n"))
		if err := p.Reload(); err != nil {
			t.Fatal(err)
		}
		if got, _ := call(a.client("-")); got != want {
			t.Errorf("without a certificate, where there are %s: %v, want %v", text, got, want)
		}
	}
	// An invalid certificate leaves the previous one in force; a valid one replaces it.
	write(t, file("cert"), []byte("nonsense"))
	cert, key = a.issue(2, "")
	until(t, func() bool {
		code, serial := call(a.client("spiffe://corp/a"))
		if code != codes.OK {
			t.Fatalf("with the certificate %d: %v", serial, code)
		}
		if serial == 1 { // a pair is in place when both files are
			write(t, file("key"), key)
			write(t, file("cert"), cert)
		}
		return serial == 2
	})
}

// until polls until holds returns true. It is for conditions without an event to wait for.
func until(t *testing.T, holds func() bool) {
	t.Helper()
	deadline, tick := time.After(20*time.Second), time.NewTicker(200*time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("waited in vain")
		}
	}
}

func TestWideAddressesTakeTLSAndPolicy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]server.Config{
		"neither": {}, "TLS alone": {TLS: &server.TLS{CertFile: "c", KeyFile: "k"}},
	} {
		c.Listen, c.Services = []string{"0.0.0.0:0"}, []server.Service{info{}}
		s, err := server.New(t.Context(), c)
		if err == nil {
			_ = s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "--policy") || !strings.Contains(err.Error(), "--tls-cert") {
			t.Errorf("%s: %v, want one that says what is missing", name, err)
		}
	}
}
