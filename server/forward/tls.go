package forward

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/credentials"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/internal/filewatch"
)

// TLS has the files by which replicas authenticate each other, in PEM. They are reloaded when they change.
type TLS struct {
	// CertFile and KeyFile are this replica's certificate with its intermediates, and its key. The certificate must be
	// valid for servers and clients. Its names are not checked.
	CertFile, KeyFile string
	// CAFile has the CAs of the replicas. A certificate of such a CA makes its holder a replica, which may act for any
	// caller: these CAs must sign nothing else.
	CAFile string
}

// identity is this replica's certificate and the CAs of the replicas, as they were read.
type identity struct {
	pair  tls.Certificate
	roots *x509.CertPool
	// checked has the certificates, in DER, that Check has verified.
	checked sync.Map
}

// load reads the files, and checks that the replica would trust itself.
func (t *TLS) load() (*identity, error) {
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("certificate %q, key %q: %w", t.CertFile, t.KeyFile, err)
	}
	text, err := os.ReadFile(t.CAFile)
	if err != nil {
		return nil, err
	}
	i := &identity{pair: pair, roots: x509.NewCertPool()}
	if !i.roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("CA %q: the file contains no certificate", t.CAFile)
	}
	chain := make([]*x509.Certificate, len(pair.Certificate))
	for n, der := range pair.Certificate {
		if chain[n], err = x509.ParseCertificate(der); err != nil {
			return nil, fmt.Errorf("certificate %q: %w", t.CertFile, err)
		}
	}
	for use, name := range uses {
		if err := i.verify(chain, use); err != nil {
			return nil, fmt.Errorf("certificate %q is not valid for %s of replicas: %w", t.CertFile, name, err)
		}
	}
	return i, nil
}

// uses are the two sides of a connection between replicas.
var uses = map[x509.ExtKeyUsage]string{
	x509.ExtKeyUsageServerAuth: "servers", x509.ExtKeyUsageClientAuth: "clients",
}

// verify checks that a chain is that of a replica.
func (i *identity) verify(chain []*x509.Certificate, use x509.ExtKeyUsage) error {
	if len(chain) == 0 {
		return errors.New("the other side has no certificate")
	}
	between := x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: i.roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{use},
	})
	return err
}

// Credentials are the transport credentials of replicas, for listeners and for connections to other replicas.
type Credentials struct {
	files   TLS
	log     *slog.Logger
	current atomic.Pointer[identity]
}

// NewCredentials reads the files.
func NewCredentials(files TLS, log *slog.Logger) (*Credentials, error) {
	c := &Credentials{files: files, log: log}
	read, err := files.load()
	if err != nil {
		return nil, fmt.Errorf("TLS of replicas: %w", err)
	}
	c.current.Store(read)
	return c, nil
}

// Watch reloads the files whenever they change, until ctx ends. If they are invalid, the current ones stay.
func (c *Credentials) Watch(ctx context.Context) {
	filewatch.Watch(ctx, filewatch.Every, func() []string {
		return []string{c.files.CertFile, c.files.KeyFile, c.files.CAFile}
	}, c.reload)
}

func (c *Credentials) reload() {
	read, err := c.files.load()
	if err != nil {
		c.log.Error("reloading the certificates of replicas failed, the old certificates remain in force",
			slog.Any("error", err))
		return
	}
	c.current.Store(read)
	c.log.Info("certificates of replicas reloaded", slog.String("path", c.files.CertFile))
}

// client returns the configuration of connections to other replicas.
func (c *Credentials) client() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
		// verify replaces the standard verification: it is the same without the name, which no replica needs.
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection verifies the chain
		VerifyConnection: func(state tls.ConnectionState) error {
			return c.current.Load().verify(state.PeerCertificates, x509.ExtKeyUsageServerAuth)
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &c.current.Load().pair, nil
		},
	}
}

// server returns the configuration of the listener for other replicas.
func (c *Credentials) server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"}, ClientAuth: tls.RequireAnyClientCert,
		SessionTicketsDisabled: true, // each handshake shows the certificate
		VerifyConnection: func(state tls.ConnectionState) error {
			return c.current.Load().verify(state.PeerCertificates, x509.ExtKeyUsageClientAuth)
		},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &c.current.Load().pair, nil },
	}
}

// Listener returns the transport credentials of the listener for other replicas.
func (c *Credentials) Listener() credentials.TransportCredentials {
	return credentials.NewTLS(c.server())
}

// Dialer returns the transport credentials of connections to other replicas.
func (c *Credentials) Dialer() credentials.TransportCredentials {
	return credentials.NewTLS(c.client())
}

// Check refuses a call unless its connection is that of a replica whose certificate is still trusted.
func (c *Credentials) Check(info credentials.AuthInfo) error {
	shown, ok := info.(credentials.TLSInfo)
	if !ok || len(shown.State.PeerCertificates) == 0 {
		return fault.New(fault.Unauthenticated, "only replicas may call this listener")
	}
	now, chain := c.current.Load(), shown.State.PeerCertificates
	if _, ok := now.checked.Load(string(chain[0].Raw)); ok {
		return nil
	}
	if err := now.verify(chain, x509.ExtKeyUsageClientAuth); err != nil {
		return fault.Wrap(err, fault.Unauthenticated, "the replica's certificate is no longer trusted")
	}
	now.checked.Store(string(chain[0].Raw), nil)
	return nil
}
