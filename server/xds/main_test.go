//go:build xds

package xds_test

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
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/controlplane"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/freeport"
)

const (
	addressEnv   = "XDS_TEST_ADDRESS"
	directoryEnv = "XDS_TEST_DIRECTORY"
	// spiffe begins the SPIFFE ids of the providers' certificates. Their names follow.
	spiffe = "spiffe://corp/"
)

// providers have a certificate each.
var providers = []string{"server", "member", "stranger"}

var (
	// plane is the control plane of all tests: gRPC has one for a process.
	plane *controlplane.Server
	ca    *authority
)

// TestMain runs the tests in a process with a bootstrap file, since gRPC reads its variable when a program begins.
func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	address := os.Getenv(addressEnv)
	if address == "" {
		return again()
	}
	if ca, err = newAuthority(); err != nil {
		return 0, err
	}
	for i, name := range providers {
		if err := ca.issue(file(name, ""), int64(i+1), spiffe+name); err != nil {
			return 0, err
		}
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return 0, err
	}
	plane = controlplane.New(l)
	defer plane.Stop()
	return m.Run(), nil
}

// again runs this program once more, with a bootstrap file.
func again() (code int, err error) {
	dir, err := os.MkdirTemp("", "xds")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // of a test
	port, err := freeport.Port()
	if err != nil {
		return 0, err
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	child := exec.Command(os.Args[0], os.Args[1:]...) //nolint:gosec // this program
	child.Env = append(os.Environ(), addressEnv+"="+address, directoryEnv+"="+dir,
		"GRPC_XDS_BOOTSTRAP_CONFIG="+controlplane.Bootstrap(address, dir, providers...))
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	err = child.Run()
	if child.ProcessState != nil {
		return child.ProcessState.ExitCode(), nil
	}
	return 0, err
}

// file returns the path of a file of a provider.
func file(provider, name string) string {
	return filepath.Join(os.Getenv(directoryEnv), provider, name)
}

// authority is a CA.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority() (*authority, error) {
	a := &authority{cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "CA"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, a.key.Public(), a.key)
	if err != nil {
		return nil, err
	}
	a.cert, err = x509.ParseCertificate(der)
	return a, err
}

// issue writes a certificate for servers and clients, its key and the CA's certificate into a new folder.
func (a *authority) issue(dir string, serial int64, spiffe string) error {
	id, err := url.Parse(spiffe)
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, URIs: []*url.URL{id},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	cert, err := x509.CreateCertificate(rand.Reader, leaf, a.cert, key.Public(), a.key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	for name, block := range map[string]*pem.Block{
		"cert": {Type: "CERTIFICATE", Bytes: cert}, "key": {Type: "PRIVATE KEY", Bytes: private},
		"ca": {Type: "CERTIFICATE", Bytes: a.cert.Raw},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// revoke returns a revocation list.
func (a *authority) revoke(serials ...int64) ([]byte, error) {
	list := &x509.RevocationList{Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Minute),
		NextUpdate: time.Now().Add(time.Hour)}
	for _, serial := range serials {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: big.NewInt(serial), RevocationTime: time.Now().Add(-time.Minute)})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, a.cert, a.key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der}), nil
}
