package identity

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// RevocationLists are the certificate revocation lists (CRLs) of the CAs of client certificates. It is safe for
// concurrent use.
type RevocationLists struct {
	byIssuer map[string]*revocationList // by the issuer's name, in DER
	now      func() time.Time
}

type revocationList struct {
	list    *x509.RevocationList
	serials map[string]bool
	// signed has the certificates, in DER, whose signature of the list is verified.
	signed sync.Map
}

// pemCRL is the type of a PEM block with a list.
const pemCRL = "X509 CRL"

// partial are the extensions of lists without all of an issuer's revoked certificates.
var partial = map[string]string{"2.5.29.27": "a delta list", "2.5.29.28": "a list of one distribution point"}

// ParseRevocationLists parses lists, in PEM or one in DER. The latest list of an issuer is used.
func ParseRevocationLists(text []byte, now func() time.Time) (*RevocationLists, error) {
	r := &RevocationLists{byIssuer: map[string]*revocationList{}, now: now}
	if !bytes.Contains(text, []byte("-----BEGIN")) {
		return r, r.add(text)
	}
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != pemCRL {
			return nil, fmt.Errorf("a PEM block is %q, not %q", block.Type, pemCRL)
		}
		if err := r.add(block.Bytes); err != nil {
			return nil, err
		}
	}
	if len(r.byIssuer) == 0 {
		return nil, errors.New("it contains no revocation list")
	}
	return r, nil
}

func (r *RevocationLists) add(der []byte) error {
	list, err := x509.ParseRevocationList(der)
	if err != nil {
		return fmt.Errorf("malformed revocation list: %w", err)
	}
	for _, e := range list.Extensions {
		if what, ok := partial[e.Id.String()]; ok {
			return fmt.Errorf("the list of %q is %s, which is not supported: give one with all certificates",
				list.Issuer, what)
		}
		if e.Critical {
			return fmt.Errorf("the list of %q has the unknown critical extension %s", list.Issuer, e.Id)
		}
	}
	if list.NextUpdate.IsZero() {
		return fmt.Errorf("the list of %q has no time of its next update", list.Issuer)
	}
	if before := r.byIssuer[string(list.RawIssuer)]; before != nil && !list.ThisUpdate.After(before.list.ThisUpdate) {
		return nil
	}
	serials := make(map[string]bool, len(list.RevokedCertificateEntries))
	for _, e := range list.RevokedCertificateEntries {
		if e.ReasonCode != removeFromCRL {
			serials[string(e.SerialNumber.Bytes())] = true
		}
	}
	r.byIssuer[string(list.RawIssuer)] = &revocationList{list: list, serials: serials}
	return nil
}

// removeFromCRL is the reason code of an entry that cancels an earlier one.
const removeFromCRL = 8

// Check returns an error if a verified chain, starting with the client's certificate, is not trusted: a certificate
// is revoked, or its list is missing or out of date. Lists are not required for CAs between the client's and the
// root.
func (r *RevocationLists) Check(chain []*x509.Certificate) error {
	if r == nil {
		return nil
	}
	for i := 0; i+1 < len(chain); i++ {
		cert, issuer := chain[i], chain[i+1]
		l := r.byIssuer[string(cert.RawIssuer)]
		if l == nil && i > 0 {
			continue
		}
		if l == nil {
			return fault.New(fault.Unauthenticated, "no revocation list of the certificate's issuer %q is configured",
				cert.Issuer)
		}
		if err := l.signedBy(issuer); err != nil {
			return fault.New(fault.Unauthenticated, "the revocation list of %q is not signed by that issuer",
				cert.Issuer)
		}
		if next := l.list.NextUpdate; r.now().After(next) {
			return fault.New(fault.Unauthenticated, "the revocation list of %q is out of date since %s", cert.Issuer,
				next.Format(time.RFC3339))
		}
		if l.serials[string(cert.SerialNumber.Bytes())] {
			return fault.New(fault.Unauthenticated, "the certificate %x of %q is revoked", cert.SerialNumber,
				cert.Issuer)
		}
	}
	return nil
}

// signedBy verifies the list's signature, once for each issuer.
func (l *revocationList) signedBy(issuer *x509.Certificate) error {
	if _, ok := l.signed.Load(string(issuer.Raw)); ok {
		return nil
	}
	err := l.list.CheckSignatureFrom(issuer)
	if err == nil {
		l.signed.Store(string(issuer.Raw), nil)
	}
	return err
}
