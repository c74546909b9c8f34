package identity

import (
	"cmp"
	"context"
	"crypto/x509"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// Certificates authenticates by client certificates that the TLS handshake has verified.
type Certificates struct {
	// TrustDomains are the trusted SPIFFE trust domains; empty trusts everything that the client CA signs.
	TrustDomains []string
	// Proxies are the proxies whose MetadataForwarded is trusted.
	Proxies []Proxy
	// Now is the clock.
	Now func() time.Time
}

// Proxy names the client certificate of a proxy, by a SPIFFE id or a DNS name; the other field is empty.
type Proxy struct{ SPIFFE, DNS string }

// name returns the name of the proxy.
func (p Proxy) name() string { return cmp.Or(p.SPIFFE, p.DNS) }

// Authenticate implements Authenticator. The identity of a proxy's connection is that of the forwarded certificate.
func (c Certificates) Authenticate(_ context.Context, proof Proof) (*Identity, error) {
	cert := proof.Certificate
	if cert == nil {
		return nil, nil
	}
	id, err := c.identityOf(cert)
	if err != nil {
		return nil, err
	}
	if proxy := c.proxyOf(id); proxy != "" {
		return c.forwarded(cert, proxy, proof.Forwarded)
	}
	return id, nil
}

// proxyOf returns the name of the proxy that has an identity; "" if it is not a proxy's.
func (c Certificates) proxyOf(id *Identity) string {
	for _, p := range c.Proxies {
		hasName := func(name string) bool { return strings.EqualFold(name, p.DNS) }
		if p.SPIFFE != "" && p.SPIFFE == id.SPIFFE || p.DNS != "" && slices.ContainsFunc(id.DNS, hasName) {
			return p.name()
		}
	}
	return ""
}

// forwarded returns the identity that a proxy has reported.
func (c Certificates) forwarded(of *x509.Certificate, proxy string, values []string) (*Identity, error) {
	switch len(values) {
	case 0:
		return nil, fault.New(fault.Unauthenticated, "the proxy %q has no rights of its own: the call needs the "+
			"metadata \"authorization: Bearer TOKEN\", or the caller a client certificate that the proxy reports in %q",
			proxy, MetadataForwarded)
	case 1:
	default:
		return nil, fault.New(fault.Unauthenticated, "the metadata %q occurs %d times, not once", MetadataForwarded,
			len(values))
	}
	e, err := lastElement(values[0])
	var cert *x509.Certificate
	if err == nil {
		cert, err = e.certificate(of)
	}
	if err != nil {
		return nil, fault.Wrap(err, fault.Unauthenticated, "the metadata %q of the proxy %q cannot be used",
			MetadataForwarded, proxy)
	}
	id, err := c.identityOf(cert)
	if err != nil {
		return nil, err
	}
	if other := c.proxyOf(id); other != "" {
		return nil, fault.New(fault.Unauthenticated, "the proxy %q reports the proxy %q as its caller: a proxy has no "+
			"rights of its own", proxy, other)
	}
	id.Proxy = proxy
	return id, nil
}

// identityOf returns the identity of a verified certificate. It checks the validity period again: a connection may
// outlast its certificate, and a proxy's connection that of its caller.
func (c Certificates) identityOf(cert *x509.Certificate) (*Identity, error) {
	switch now := c.Now(); {
	case now.Before(cert.NotBefore):
		return nil, fault.New(fault.Unauthenticated, "the certificate is not valid before %s",
			cert.NotBefore.UTC().Format(time.RFC3339))
	case !now.Before(cert.NotAfter):
		return nil, fault.New(fault.Unauthenticated, "the certificate has expired at %s",
			cert.NotAfter.UTC().Format(time.RFC3339))
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
