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
	"github.com/copilot-grpc/copilot-grpc/internal/filewatch"
	"github.com/copilot-grpc/copilot-grpc/server/identity"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
	"github.com/copilot-grpc/copilot-grpc/server/xds"
)

// TLS configures the certificates of a server. Files are reloaded when they change.
type TLS struct {
	// CertFile and KeyFile are the server's certificate with its intermediates, and its key, in PEM.
	CertFile, KeyFile string
	// ClientCAFile has the CAs of client certificates, in PEM. By default clients are not asked for certificates.
	ClientCAFile string
	// ClientCRLFile has the revocation lists of client certificates, in PEM or one in DER. By default none is
	// revoked. It requires ClientCAFile.
	ClientCRLFile string
}

// Load reads the files. The lists are nil if there are none.
func (t *TLS) Load() (*tls.Config, *identity.RevocationLists, error) {
	pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
	if err != nil {
		return nil, nil, fmt.Errorf("certificate %q, key %q: %w", t.CertFile, t.KeyFile, err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	switch {
	case t.ClientCAFile == "" && t.ClientCRLFile != "":
		return nil, nil, fmt.Errorf("revocation lists %q require a CA of client certificates (--tls-client-ca)",
			t.ClientCRLFile)
	case t.ClientCAFile == "":
		return c, nil, nil
	}
	text, err := os.ReadFile(t.ClientCAFile)
	if err != nil {
		return nil, nil, err
	}
	c.ClientCAs = x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(text) {
		return nil, nil, fmt.Errorf("client CA %q: the file contains no certificate", t.ClientCAFile)
	}
	c.ClientAuth = tls.VerifyClientCertIfGiven
	lists, err := t.loadLists()
	if err != nil {
		return nil, nil, err
	}
	c.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.VerifiedChains) == 0 {
			return nil // the client presented no certificate
		}
		return lists.Check(state.VerifiedChains[0]) // the chain that authenticates calls
	}
	return c, lists, nil
}

// loadLists reads the revocation lists; nil if there are none.
func (t *TLS) loadLists() (*identity.RevocationLists, error) {
	if t.ClientCRLFile == "" {
		return nil, nil
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

// certificates are the current certificates.
type certificates struct {
	log *slog.Logger
	// policy determines whether connections without a client certificate are refused; nil: they are not.
	policy  *policy.Store
	files   atomic.Pointer[TLS]
	current atomic.Pointer[tls.Config]
	lists   atomic.Pointer[identity.RevocationLists]
	// changed is called after each change.
	changed func()
}

func newCertificates(files *TLS, p *policy.Store, log *slog.Logger) (*certificates, error) {
	c := &certificates{log: log, policy: p, changed: func() {}}
	return c, c.use(files)
}

// use reads files and makes their content current. If they are invalid, the current content stays.
func (c *certificates) use(files *TLS) error {
	read, lists, err := files.Load()
	if err != nil {
		return err
	}
	c.files.Store(files)
	c.current.Store(read)
	c.lists.Store(lists)
	c.changed()
	return nil
}

// trusted returns an error if the certificate of a proof is revoked, or its CA is no longer a client CA.
func (c *certificates) trusted(proof identity.Proof) error {
	if proof.Certificate == nil {
		return nil
	}
	if err := c.lists.Load().Check(proof.Chain); err != nil || proof.Mesh {
		return err
	}
	roots := c.current.Load().ClientCAs
	if roots == nil { // otherwise Verify would use the system's CAs
		return fault.New(fault.Unauthenticated, "client certificates are no longer accepted")
	}
	between := x509.NewCertPool()
	for _, cert := range proof.Chain[1:] {
		between.AddCert(cert)
	}
	_, err := proof.Certificate.Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return fault.Wrap(err, fault.Unauthenticated, "the client certificate is no longer trusted")
	}
	return nil
}

// configFor gives each handshake the current configuration, with protocols.
func (c *certificates) configFor(protocols ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return withProtocols(c.now(), protocols), nil
		},
	}
}

// now returns the configuration for a handshake. The policy, which can change independently, determines whether a
// certificate is required.
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

// reload reads the files again. If they are invalid, the current content stays.
func (c *certificates) reload() {
	files := c.files.Load()
	if err := c.use(files); err != nil {
		c.log.Error("reloading certificates failed, the old certificates remain in force", slog.Any("error", err))
		return
	}
	c.log.Info("certificates reloaded", slog.String("path", files.CertFile))
}

// watch reloads whenever a file changes, until ctx ends.
func (c *certificates) watch(ctx context.Context) {
	filewatch.Watch(ctx, filewatch.Every, func() []string {
		files := c.files.Load()
		return slices.DeleteFunc([]string{files.CertFile, files.KeyFile, files.ClientCAFile, files.ClientCRLFile},
			func(path string) bool { return path == "" })
	}, c.reload)
}

// perNetwork uses TLS on TCP, and no transport security on unix sockets, where only the server's user can connect.
type perNetwork struct {
	credentials.TransportCredentials // of TCP
	plain                            credentials.TransportCredentials
	maxMessage                       int
	mesh                             *mesh // nil without xDS
}

func newPerNetwork(c *certificates, t *connections, config *Config) (p perNetwork, err error) {
	p = perNetwork{plain: insecure.NewCredentials(), TransportCredentials: insecure.NewCredentials(),
		maxMessage: config.MaxRecvBytes}
	if c != nil {
		p.TransportCredentials = credentials.NewTLS(c.configFor("h2"))
	}
	if config.XDS {
		p.mesh = &mesh{c, t}
		p.TransportCredentials, err = xds.Credentials(fallback{p.TransportCredentials})
	}
	return p, err
}

// ServerHandshake implements credentials.TransportCredentials.
func (p perNetwork) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if conn.LocalAddr().Network() == "unix" {
		safe, shown, err := p.plain.ServerHandshake(conn)
		return safe, handshaken{shown, nil, &callCount{}}, err
	}
	safe, shown, err := p.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		return safe, shown, err
	}
	if p.mesh != nil {
		return p.mesh.admit(conn, safe, shown, p.maxMessage)
	}
	if on, ok := conn.(*connection); ok {
		safe, shown = on.follow(safe, p.maxMessage), handshaken{shown, on, &on.calls}
	}
	return safe, shown, nil
}

// ClientHandshake implements credentials.TransportCredentials; servers do not need it.
func (perNetwork) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("the credentials are for servers only")
}

// Clone implements credentials.TransportCredentials.
func (p perNetwork) Clone() credentials.TransportCredentials {
	return perNetwork{p.TransportCredentials.Clone(), p.plain.Clone(), p.maxMessage, p.mesh}
}
