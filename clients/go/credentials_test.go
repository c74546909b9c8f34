package copilot_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
)

func TestTokenSourceFails(t *testing.T) {
	t.Parallel()
	listener := serveInfo(t, &fake{}, "tcp", "127.0.0.1:0")
	_, err := copilot.Dial(testContext(t), listener.Addr().String(),
		copilot.WithTokenSource(copilot.TokenFromFile("/no/such/token")))
	if err == nil || !strings.Contains(err.Error(), "/no/such/token") {
		t.Errorf("no file: %v", err)
	}
	_, err = copilot.Dial(testContext(t), listener.Addr().String(),
		copilot.WithTokenSource(func(context.Context) (string, error) { return "", errors.New("no vault") }))
	if err == nil || !strings.Contains(err.Error(), "no vault") {
		t.Errorf("no token: %v", err)
	}
}

// authority signs certificates of a test.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// issue writes a certificate and its key, and returns their files.
func (a *authority) issue(t *testing.T, name string, isCA bool) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: isCA, BasicConstraintsValid: isCA,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if isCA {
		a.cert, a.key = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(file, kind string, data []byte) string {
		path := filepath.Join(a.dir, file)
		var text bytes.Buffer
		if err := pem.Encode(&text, &pem.Block{Type: kind, Bytes: data}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write(name+".pem", "CERTIFICATE", der), write(name+".key", "PRIVATE KEY", private)
}

func TestCertificatesFromFiles(t *testing.T) {
	t.Parallel()
	a := &authority{dir: t.TempDir()}
	caFile, _ := a.issue(t, "ca", true)
	clientCert, clientKey := a.issue(t, "client", false)
	serverCert, serverKey := a.issue(t, "agents.example", false)
	pair, err := tls.LoadX509KeyPair(serverCert, serverKey)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	text, err := os.ReadFile(caFile)
	if err != nil || !pool.AppendCertsFromPEM(text) {
		t.Fatal(err)
	}
	listener := serveInfo(t, &fake{}, "tcp", "127.0.0.1:0", grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
	})))
	dial := func(opts ...copilot.Option) error {
		c, err := copilot.Dial(testContext(t), listener.Addr().String(), opts...)
		if err == nil {
			err = c.Close()
		}
		return err
	}
	name := copilot.WithServerName("agents.example")
	if err := dial(copilot.WithCAFile(caFile), copilot.WithClientCertificate(clientCert, clientKey), name); err != nil {
		t.Errorf("with all files: %v", err)
	}
	// The server's refusal of a connection may arrive as a reset.
	for want, opts := range map[string][]copilot.Option{
		"unknown authority":      {copilot.WithClientCertificate(clientCert, clientKey), name},
		"no server at":           {copilot.WithCAFile(caFile), name},
		"doesn't contain any":    {copilot.WithCAFile(caFile), copilot.WithClientCertificate(clientCert, clientKey)},
		"no such file":           {copilot.WithCAFile(caFile + "x")},
		"has no PEM certificate": {copilot.WithCAFile(clientKey)},
		"client certificate":     {copilot.WithCAFile(caFile), copilot.WithClientCertificate(clientCert, caFile)},
	} {
		if err := dial(opts...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}
