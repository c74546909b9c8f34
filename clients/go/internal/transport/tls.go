package transport

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// TLS is a TLS configuration with its files. The zero value uses the system's roots.
type TLS struct {
	// Config is the configuration that the other fields complete; may be nil.
	Config *tls.Config
	// CAFile has the certificates that sign the server's.
	CAFile string
	// CertFile and KeyFile have the client's certificate and key.
	CertFile, KeyFile string
	// ServerName is the name in the server's certificate, if the target has another one.
	ServerName string
}

// IsSet reports whether a field is set.
func (t TLS) IsSet() bool { return t != TLS{} }

// Load returns the configuration. The client's certificate is read again for each connection, so that it may rotate.
func (t TLS) Load() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.Config != nil {
		config = t.Config.Clone()
	}
	if t.ServerName != "" {
		config.ServerName = t.ServerName
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("copilot: CA certificates: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("copilot: the file %q has no PEM certificate", t.CAFile)
		}
	}
	if t.CertFile == "" && t.KeyFile == "" {
		return config, nil
	}
	load := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("copilot: client certificate: %w", err)
		}
		return &pair, nil
	}
	if _, err := load(); err != nil {
		return nil, err
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return load() }
	return config, nil
}
