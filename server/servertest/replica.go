package servertest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/server/forward"
)

// CA is a certificate authority of replicas.
type CA struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA returns a new authority.
func NewCA(tb testing.TB) *CA {
	tb.Helper()
	ca := &CA{cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "replicas"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, key: newKey(tb)}
	var err error
	if ca.cert.Raw, err = x509.CreateCertificate(rand.Reader, ca.cert, ca.cert, ca.key.Public(), ca.key); err != nil {
		tb.Fatal(err)
	}
	return ca
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

// Issue writes a new certificate with its key and the authority's certificate to files. By default it is valid for
// servers and clients.
func (ca *CA) Issue(tb testing.TB, usage ...x509.ExtKeyUsage) forward.TLS {
	tb.Helper()
	return ca.issue(tb, &x509.Certificate{ExtKeyUsage: usage})
}

// IssueLocal is Issue for a server on the loopback interface whose clients check its name.
func (ca *CA) IssueLocal(tb testing.TB) forward.TLS {
	tb.Helper()
	return ca.issue(tb, &x509.Certificate{
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	})
}

func (ca *CA) issue(tb testing.TB, leaf *x509.Certificate) forward.TLS {
	tb.Helper()
	if len(leaf.ExtKeyUsage) == 0 {
		leaf.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	key := newKey(tb)
	leaf.SerialNumber, leaf.Subject = big.NewInt(2), pkix.Name{CommonName: "replica"}
	leaf.NotBefore, leaf.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca.cert, key.Public(), ca.key)
	if err != nil {
		tb.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	file := func(name, kind string, der []byte) string {
		path := filepath.Join(dir, name)
		text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
		if err := os.WriteFile(path, text, 0o600); err != nil {
			tb.Fatal(err)
		}
		return path
	}
	return forward.TLS{CertFile: file("cert", "CERTIFICATE", der), KeyFile: file("key", "PRIVATE KEY", private),
		CAFile: file("ca", "CERTIFICATE", ca.cert.Raw)}
}
