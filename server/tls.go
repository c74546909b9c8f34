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

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/copilot-grpc/copilot-grpc/internal/refile"
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
	return c, nil
}

// certificates are those in force.
type certificates struct {
	log *slog.Logger
	// policy says whether connections without a client certificate are refused; nil: they are
	// not.
	policy  *policy.Store
	files   atomic.Pointer[TLS]
	current atomic.Pointer[tls.Config]
}

func newCertificates(files *TLS, p *policy.Store, log *slog.Logger) (*certificates, error) {
	c := &certificates{log: log, policy: p}
	first, err := files.Load()
	if err != nil {
		return nil, err
	}
	c.use(files, first)
	return c, nil
}

// use puts what was read from the files into force.
func (c *certificates) use(files *TLS, read *tls.Config) {
	c.files.Store(files)
	c.current.Store(read)
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
	next, err := files.Load()
	if err != nil {
		c.log.Error("certificates not reloaded, those before stay in force", slog.Any("error", err))
		return
	}
	c.current.Store(next)
	c.log.Info("certificates reloaded", slog.String("path", files.CertFile))
}

// watch reloads whenever a file changes, until ctx ends.
func (c *certificates) watch(ctx context.Context) {
	refile.Watch(ctx, refile.Every, func() []string {
		files := c.files.Load()
		return slices.DeleteFunc([]string{files.CertFile, files.KeyFile, files.ClientCAFile}, func(path string) bool { return path == "" })
	}, c.reload)
}

// perNetwork speaks TLS on TCP, and nothing but gRPC on unix sockets, where nobody but the
// own user is at the other end.
type perNetwork struct {
	credentials.TransportCredentials // of TCP
	plain                            credentials.TransportCredentials
}

func newPerNetwork(c *certificates) perNetwork {
	p := perNetwork{plain: insecure.NewCredentials(), TransportCredentials: insecure.NewCredentials()}
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
	if on, ok := conn.(*arrival); ok && err == nil {
		shown = arrived{shown, on}
	}
	return safe, shown, err
}

// ClientHandshake implements credentials.TransportCredentials; servers do not need it.
func (perNetwork) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are a server's")
}

// Clone implements credentials.TransportCredentials.
func (p perNetwork) Clone() credentials.TransportCredentials {
	return perNetwork{p.TransportCredentials.Clone(), p.plain.Clone()}
}
