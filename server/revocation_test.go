package server_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

// revoke makes a revocation list with serial numbers, in PEM.
func (a *authority) revoke(number int64, next time.Time, serials ...int64) []byte {
	a.t.Helper()
	list := &x509.RevocationList{Number: big.NewInt(number),
		ThisUpdate: time.Now().Add(time.Duration(number-100) * time.Minute), NextUpdate: next}
	for _, n := range serials {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries, x509.RevocationListEntry{
			SerialNumber: big.NewInt(n), RevocationTime: time.Now(),
		})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, a.cert, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})
}

// certified is a server that knows callers by certificates, and honours revocation lists.
type certified struct {
	*servertest.Running
	*authority
	dir string
}

func startCertified(t *testing.T, lists func(a *authority) []byte) *certified {
	t.Helper()
	s := &certified{authority: newAuthority(t), dir: t.TempDir()}
	cert, key := s.issue(1, "")
	write(t, s.file("cert"), cert)
	write(t, s.file("key"), key)
	write(t, s.file("ca"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.cert.Raw}))
	write(t, s.file("crl"), lists(s.authority))
	write(t, s.file("policy"), []byte("version: 1\nidentity: {certificates: true}\ntenants: {acme: {members: "+
		"[{spiffe: 'spiffe://corp/*', role: observer}]}}\n"))
	p, err := policy.Open(s.file("policy"), slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	s.Running = servertest.Start(t, server.Config{
		Listen: []string{"127.0.0.1:0"}, Policy: p,
		TLS: &server.TLS{CertFile: s.file("cert"), KeyFile: s.file("key"), ClientCAFile: s.file("ca"),
			ClientCRLFile: s.file("crl")},
	}, info{})
	return s
}

func (s *certified) file(name string) string { return filepath.Join(s.dir, name) }

// as is a connection with a certificate of a serial number.
func (s *certified) as(serial int64) *grpc.ClientConn {
	s.t.Helper()
	c := s.client("-")
	pair, err := tls.X509KeyPair(s.issue(serial, "spiffe://corp/a"))
	if err != nil {
		s.t.Fatal(err)
	}
	c.Certificates = []tls.Certificate{pair}
	return s.Dial(s.t, 0, grpc.WithTransportCredentials(credentials.NewTLS(c)))
}

func (s *certified) code(conn *grpc.ClientConn) codes.Code {
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	_, err := bridgev1.NewRuntimeServiceClient(conn).GetServerInfo(ctx, &bridgev1.GetServerInfoRequest{})
	return status.Code(err)
}

// A certificate that is revoked while its connection is open ends that, and begins no other.
func TestRevokedCertificate(t *testing.T) {
	t.Parallel()
	tomorrow := time.Now().Add(24 * time.Hour)
	s := startCertified(t, func(a *authority) []byte { return a.revoke(1, tomorrow, 7) })
	if code := s.code(s.as(7)); code != codes.Unavailable {
		t.Errorf("one that was revoked before gets %v", code)
	}
	revoked, other := s.as(8), s.as(9)
	for _, conn := range []*grpc.ClientConn{revoked, other} {
		if code := s.code(conn); code != codes.OK {
			t.Fatalf("a good certificate gets %v", code)
		}
	}
	write(t, s.file("crl"), s.revoke(2, tomorrow, 7, 8))
	if !revoked.WaitForStateChange(t.Context(), connectivity.Ready) { // without a call
		t.Fatal("the connection stays")
	}
	if code := s.code(revoked); code != codes.Unavailable {
		t.Errorf("another connection with it gets %v", code)
	}
	if code := s.code(other); code != codes.OK || other.GetState() != connectivity.Ready {
		t.Errorf("another certificate gets %v", code)
	}
	write(t, s.file("crl"), []byte("no list")) // leaves in force what was
	write(t, s.file("ca"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: newAuthority(t).cert.Raw}))
	write(t, s.file("crl"), s.revoke(3, tomorrow))
	if !other.WaitForStateChange(t.Context(), connectivity.Ready) {
		t.Fatal("a connection stays whose CA is not trusted any more")
	}
}

// Without a current list the server cannot know which certificates are revoked: it accepts none.
func TestRevocationListsHaveToBeThere(t *testing.T) {
	t.Parallel()
	for name, lists := range map[string]func(a *authority) []byte{
		"out of date":       func(a *authority) []byte { return a.revoke(1, time.Now().Add(-time.Second)) },
		"of another issuer": func(*authority) []byte { return named(t, "other").revoke(1, time.Now().Add(time.Hour)) },
		"forged":            func(*authority) []byte { return newAuthority(t).revoke(1, time.Now().Add(time.Hour)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startCertified(t, lists)
			if code := s.code(s.as(8)); code != codes.Unavailable {
				t.Errorf("a certificate gets %v", code)
			}
		})
	}
}

// named is a CA of another name.
func named(t *testing.T, name string) *authority {
	a := newAuthority(t)
	c := *a.cert
	c.RawSubject, c.Subject.CommonName = nil, name
	a.cert = &c
	return a
}
