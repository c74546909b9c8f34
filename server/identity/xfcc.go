package identity

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// MetadataForwarded is the metadata in which a proxy forwards its caller's certificate (XFCC), in Envoy's format.
const MetadataForwarded = "x-forwarded-client-cert"

// element has the values of one proxy in the header, by keys in lower case.
type element map[string][]string

// elementKeys are the known keys. Those with true may occur several times.
var elementKeys = map[string]bool{
	"by": true, "hash": false, "cert": false, "chain": false, "subject": false, "uri": true, "dns": true,
}

// lastElement parses a header, and returns its last element, which the nearest proxy has written.
//
// Envoy writes the names of a certificate as they are: after a comma in one of them, a caller could write an element of
// its own. The element before would then lack a part of the names of its certificate, so all elements are checked.
func lastElement(header string) (element, error) {
	e := element{}
	for {
		key, rest, ok := strings.Cut(header, "=")
		key = strings.ToLower(strings.TrimSpace(key))
		repeats, known := elementKeys[key]
		switch {
		case !ok || !known:
			return nil, fmt.Errorf("%q is not a key with a value", shortened(key))
		case !repeats && e[key] != nil:
			return nil, fmt.Errorf("the key %q occurs twice", key)
		}
		value, rest, err := elementValue(rest)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", key, err)
		}
		e[key] = append(e[key], value)
		switch {
		case rest == "":
			return e, nil
		case rest[0] == ',':
			if e["cert"] != nil {
				if _, err := e.certificate(&x509.Certificate{}); err != nil {
					return nil, fmt.Errorf("an element before the last one: %w", err)
				}
			}
			e = element{}
		case rest[0] != ';':
			return nil, fmt.Errorf("%q: text follows the closing quote", key)
		}
		header = rest[1:]
	}
}

// elementValue returns the value at the beginning of a text, as it was written, and the rest of the text from the
// separator.
//
// A quote in a quoted value follows a backslash. Proxies differ in whether a backslash needs one too: after an even
// number of backslashes a quote could end the value or not, so that a caller could choose a subject that is read as
// other keys.
func elementValue(text string) (value, rest string, err error) {
	quoted, ok := strings.CutPrefix(text, `"`)
	if !ok {
		end := strings.IndexAny(text, `;,"`)
		if end < 0 {
			return text, "", nil
		}
		if text[end] == '"' {
			return "", "", errors.New("a quote is within a value without quotes")
		}
		return text[:end], text[end:], nil
	}
	backslashes := 0
	for i := range len(quoted) {
		switch c := quoted[i]; {
		case c == '\\':
			backslashes++
			continue
		case c == '"' && backslashes == 0:
			return quoted[:i], quoted[i+1:], nil
		case c == '"' && backslashes%2 == 0:
			return "", "", fmt.Errorf("a quote follows %d backslashes", backslashes)
		}
		backslashes = 0
	}
	return "", "", errors.New("the quote at the beginning of the value is not closed")
}

// shortened bounds text of a caller in an error.
func shortened(text string) string { return text[:min(len(text), 32)] }

// certificate returns the certificate of an element. Without the certificate itself it has only the names, and the end
// of the proxy's.
func (e element) certificate(proxy *x509.Certificate) (*x509.Certificate, error) {
	named := &x509.Certificate{NotAfter: proxy.NotAfter}
	for _, uri := range e["uri"] {
		u, err := url.Parse(uri)
		switch {
		case err != nil:
			return nil, errors.New(`"uri" is malformed`)
		case uri != "":
			named.URIs = append(named.URIs, u)
		case len(e["uri"]) > 1: // the certificate has no URI, so that another one is a part of a name
			return nil, errors.New(`"uri" is empty, and occurs several times`)
		}
	}
	for _, name := range e["dns"] {
		if name != "" {
			named.DNSNames = append(named.DNSNames, name)
		}
	}
	if e["cert"] != nil {
		return e.shown(named)
	}
	if len(named.URIs)+len(named.DNSNames) == 0 {
		return nil, errors.New("it has no URI, DNS or Cert: the proxy must set them")
	}
	return named, nil
}

// shown returns the certificate that an element contains. Its names must be those of the element, if it has their keys.
func (e element) shown(named *x509.Certificate) (*x509.Certificate, error) {
	text, err := url.PathUnescape(e["cert"][0])
	if err != nil {
		return nil, errors.New(`"cert" is not URL-encoded`)
	}
	block, rest := pem.Decode([]byte(text))
	if block == nil || block.Type != "CERTIFICATE" || len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New(`"cert" is not one certificate in PEM`)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, errors.New(`"cert" is malformed`)
	}
	sum := sha256.Sum256(cert.Raw)
	same := func(a, b *url.URL) bool { return a.String() == b.String() }
	switch {
	case e["hash"] != nil && !strings.EqualFold(e["hash"][0], hex.EncodeToString(sum[:])):
		return nil, errors.New(`"hash" is not that of "cert"`)
	case e["uri"] != nil && !slices.EqualFunc(named.URIs, cert.URIs, same):
		return nil, errors.New(`"uri" is not that of "cert"`)
	case e["dns"] != nil && !slices.Equal(named.DNSNames, cert.DNSNames):
		return nil, errors.New(`"dns" is not that of "cert"`)
	}
	if named.NotAfter.Before(cert.NotAfter) {
		cert.NotAfter = named.NotAfter
	}
	return cert, nil
}
