package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/internal/refile"
	"github.com/copilot-grpc/copilot-grpc/server/identity"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

// TLS are the certificates of a server. Their files are read anew when they change.
type TLS struct {
	// CertFile and KeyFile are the server's certificate, with those between it and its CA,
	// and its key, in PEM.
	CertFile, KeyFile string
	// ClientCAFile are the CAs of client certificates, in PEM. Default: clients are not asked
	// for any.
	ClientCAFile string
	// ClientCRLFile are the revocation lists of client certificates, in PEM or one in DER.
	// Default: none is revoked. It takes ClientCAFile.
	ClientCRLFile string
}

// Load reads the files.
func (t *TLS) Load() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("certificate %q, key %q: %w", t.CertFile, t.KeyFile, err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	if t.ClientCAFile == "" {
		return c, nil
	}
	text, err := os.ReadFile(t.ClientCAFile)
	if err != nil {
		return nil, err
	}
	c.ClientCAs = x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("client CA %q: no certificate in it", t.ClientCAFile)
	}
	c.ClientAuth = tls.VerifyClientCertIfGiven
	if t.ClientCRLFile == "" {
		return c, nil
	}
	lists, err := t.loadLists()
	if err != nil {
		return nil, err
	}
	c.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.VerifiedChains) == 0 {
			return nil // no certificate was given
		}
		return lists.Check(state.VerifiedChains[0]) // the one that calls go by
	}
	return c, nil
}

// loadLists reads the revocation lists; nil where there are none.
func (t *TLS) loadLists() (*identity.RevocationLists, error) {
	if t.ClientCRLFile == "" {
		return nil, nil
	}
	if t.ClientCAFile == "" {
		return nil, fmt.Errorf("revocation lists %q take a CA of client certificates", t.ClientCRLFile)
	}
	text, err := os.ReadFile(t.ClientCRLFile)
	if err != nil {
		return nil, err
	}
	lists, err := identity.ParseRevocationLists(text, time.Now)
	if err != nil {
		return nil, fmt.Errorf("revocation lists %q: %w", t.ClientCRLFile, err)
	}
	return lists, nil
}

// certificates are those in force.
type certificates struct {
	log *slog.Logger
	// policy says whether connections without a client certificate are refused; nil: they are
	// not.
	policy  *policy.Store
	files   atomic.Pointer[TLS]
	current atomic.Pointer[tls.Config]
	lists   atomic.Pointer[identity.RevocationLists]
	// changed is called when others have come into force.
	changed func()
}

func newCertificates(files *TLS, p *policy.Store, log *slog.Logger) (*certificates, error) {
	c := &certificates{log: log, policy: p, changed: func() {}}
	return c, c.use(files)
}

// use reads files and puts what is in them into force. Bad ones leave those in force that are.
func (c *certificates) use(files *TLS) error {
	read, err := files.Load()
	if err != nil {
		return err
	}
	lists, err := files.loadLists()
	if err != nil {
		return err
	}
	c.files.Store(files)
	c.current.Store(read)
	c.lists.Store(lists)
	c.changed()
	return nil
}

// trusted tells why the certificate of a proof is not trusted any more: it is revoked, or its
// CA is not one of the client CAs now.
func (c *certificates) trusted(proof identity.Proof) error {
	if proof.Certificate == nil {
		return nil
	}
	if err := c.lists.Load().Check(proof.Chain); err != nil {
		return err
	}
	roots := c.current.Load().ClientCAs
	if roots == nil { // Verify would take the system's
		return fault.New(fault.Unauthenticated, "client certificates are not taken any more")
	}
	between := x509.NewCertPool()
	for _, cert := range proof.Chain[1:] {
		between.AddCert(cert)
	}
	_, err := proof.Certificate.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return fault.Wrap(err, fault.Unauthenticated, "the client certificate is not trusted any more")
	}
	return nil
}

// config hands each handshake what is in force then.
func (c *certificates) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return c.now(), nil },
	}
}

// now is what holds for a handshake now. Whether there has to be a certificate is the
// policy's word, which changes by itself.
func (c *certificates) now() *tls.Config {
	current := c.current.Load()
	if c.policy == nil || current.ClientCAs == nil {
		return current
	}
	if _, required := c.policy.Current().Certificates(); !required {
		return current
	}
	strict := current.Clone()
	strict.ClientAuth = tls.RequireAndVerifyClientCert
	return strict
}

// reload reads the files anew. Bad ones leave those in force that are.
func (c *certificates) reload() {
	files := c.files.Load()
	if err := c.use(files); err != nil {
		c.log.Error("certificates not reloaded, those before stay in force", slog.Any("error", err))
		return
	}
	c.log.Info("certificates reloaded", slog.String("path", files.CertFile))
}

// watch reloads whenever a file changes, until ctx ends.
func (c *certificates) watch(ctx context.Context) {
	refile.Watch(ctx, refile.Every, func() []string {
		files := c.files.Load()
		return slices.DeleteFunc([]string{files.CertFile, files.KeyFile, files.ClientCAFile, files.ClientCRLFile}, func(path string) bool { return path == "" })
	}, c.reload)
}

// perNetwork speaks TLS on TCP, and nothing but gRPC on unix sockets, where nobody but the
// own user is at the other end.
type perNetwork struct {
	credentials.TransportCredentials // of TCP
	plain                            credentials.TransportCredentials
	maxMessage                       int
}

func newPerNetwork(c *certificates, maxMessage int) perNetwork {
	p := perNetwork{plain: insecure.NewCredentials(), TransportCredentials: insecure.NewCredentials(), maxMessage: maxMessage}
	if c != nil {
		p.TransportCredentials = credentials.NewTLS(c.config())
	}
	return p
}

// ServerHandshake implements credentials.TransportCredentials.
func (p perNetwork) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if conn.LocalAddr().Network() == "unix" {
		return p.plain.ServerHandshake(conn)
	}
	safe, shown, err := p.TransportCredentials.ServerHandshake(conn)
	if on, ok := conn.(*connection); ok && err == nil {
		safe, shown = on.follow(safe, p.maxMessage), handshaken{shown, on}
	}
	return safe, shown, err
}

// ClientHandshake implements credentials.TransportCredentials; servers do not need it.
func (perNetwork) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are a server's")
}

// Clone implements credentials.TransportCredentials.
func (p perNetwork) Clone() credentials.TransportCredentials {
	return perNetwork{p.TransportCredentials.Clone(), p.plain.Clone(), p.maxMessage}
}
