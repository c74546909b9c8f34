package identity

import (
	"context"
	"crypto/x509"
	"net/url"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// Certificates authenticates by client certificates that the TLS handshake has verified.
type Certificates struct {
	// TrustDomains are the trusted SPIFFE trust domains; empty trusts everything that the client CA signs.
	TrustDomains []string
}

func (c Certificates) Authenticate(_ context.Context, proof Proof) (*Identity, error) {
	cert := proof.Certificate
	if cert == nil {
		return nil, nil
	}
	id := &Identity{Source: Certificate, DNS: cert.DNSNames, CommonName: cert.Subject.CommonName,
		Expires: cert.NotAfter}
	spiffe, err := spiffeID(cert)
	if err != nil {
		return nil, err
	}
	if spiffe != nil {
		if len(c.TrustDomains) > 0 && !slices.Contains(c.TrustDomains, spiffe.Host) {
			return nil, fault.New(fault.Unauthenticated,
				"the certificate's SPIFFE trust domain is not one of this server's")
		}
		id.SPIFFE = spiffe.String()
	}
	return id, nil
}

const spiffeScheme = "spiffe"

// spiffeID returns the SPIFFE id of a certificate; nil if it has none. It refuses a certificate with several ids or a
// malformed one, as the SPIFFE standard requires.
func spiffeID(cert *x509.Certificate) (*url.URL, error) {
	var found *url.URL
	for _, uri := range cert.URIs {
		if !strings.EqualFold(uri.Scheme, spiffeScheme) {
			continue
		}
		if found != nil || len(cert.URIs) > 1 {
			return nil, fault.New(fault.Unauthenticated,
				"the certificate has several URIs: a SPIFFE id must be the only one")
		}
		if !wellFormed(uri) {
			return nil, fault.New(fault.Unauthenticated, "the certificate's SPIFFE id is malformed")
		}
		found = uri
	}
	return found, nil
}

// maxSPIFFE is the maximum length of a SPIFFE id.
const maxSPIFFE = 2048

func wellFormed(id *url.URL) bool {
	if id.Scheme != spiffeScheme || id.User != nil || id.Port() != "" || id.RawQuery != "" || id.ForceQuery ||
		id.Fragment != "" ||
		id.Host == "" || id.Host != strings.ToLower(id.Host) || len(id.String()) > maxSPIFFE {
		return false
	}
	if id.Path == "" {
		return true
	}
	for segment := range strings.SplitSeq(strings.TrimPrefix(id.EscapedPath(), "/"), "/") {
		if segment == "" || segment == "." || segment == ".." || strings.Contains(segment, "%") {
			return false
		}
	}
	return true
}
