package identity

import (
	"context"
	"crypto/x509"
	"net/url"
	"slices"
	"strings"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// Certificates knows client certificates, which the TLS handshake has verified.
type Certificates struct {
	// TrustDomains are the SPIFFE trust domains that are believed; empty believes all that
	// the client CA signs.
	TrustDomains []string
}

// Authenticate implements Authenticator.
func (c Certificates) Authenticate(_ context.Context, proof Proof) (*Identity, error) {
	cert := proof.Certificate
	if cert == nil {
		return nil, nil
	}
	id := &Identity{Source: Certificate, DNS: cert.DNSNames, CommonName: cert.Subject.CommonName, Expires: cert.NotAfter}
	spiffe, err := spiffeID(cert)
	if err != nil {
		return nil, err
	}
	if spiffe != nil {
		if len(c.TrustDomains) > 0 && !slices.Contains(c.TrustDomains, spiffe.Host) {
			return nil, fault.New(fault.Unauthenticated, "the certificate's SPIFFE trust domain is not one of this server's")
		}
		id.SPIFFE = spiffe.String()
	}
	return id, nil
}

const spiffeScheme = "spiffe"

// spiffeID returns the SPIFFE id of a certificate, nil if it has none. A certificate with
// several, or with a malformed one, is no proof of anything: the SPIFFE standard has readers
// refuse it.
func spiffeID(cert *x509.Certificate) (*url.URL, error) {
	var found *url.URL
	for _, uri := range cert.URIs {
		if !strings.EqualFold(uri.Scheme, spiffeScheme) {
			continue
		}
		if found != nil || len(cert.URIs) > 1 {
			return nil, fault.New(fault.Unauthenticated, "the certificate has several URIs, so that none is its SPIFFE id")
		}
		if !wellFormed(uri) {
			return nil, fault.New(fault.Unauthenticated, "the certificate's SPIFFE id is malformed")
		}
		found = uri
	}
	return found, nil
}

// maxSPIFFE is how long a SPIFFE id may be.
const maxSPIFFE = 2048

func wellFormed(id *url.URL) bool {
	if id.Scheme != spiffeScheme || id.User != nil || id.Port() != "" || id.RawQuery != "" || id.ForceQuery || id.Fragment != "" ||
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
