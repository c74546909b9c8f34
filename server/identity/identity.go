// Package identity authenticates callers by a client certificate, a JSON web token or a static token. Package policy
// determines their rights. The package starts no goroutines; OIDC and RevocationLists guard their caches themselves.
package identity

import (
	"context"
	"crypto/x509"
	"strings"
	"time"
)

// Source is the method of authentication.
type Source string

const (
	// Socket is a connection that only the server's user can make.
	Socket Source = "socket"
	// ServerToken is the server's own token.
	ServerToken Source = "server_token"
	// Certificate is a verified client certificate.
	Certificate Source = "certificate"
	// JWT is a JSON web token of an issuer.
	JWT Source = "jwt"
	// StaticToken is a token of the tokens file.
	StaticToken Source = "token"
)

// Identity is an authenticated identity. It contains no secrets.
type Identity struct {
	// Source is the method of authentication.
	Source Source
	// Issuer and Subject come from a JSON web token; Claims are all its claims.
	Issuer, Subject string
	Claims          map[string]any
	// SPIFFE is the SPIFFE id of a certificate, DNS its names, CommonName its subject's.
	SPIFFE     string
	DNS        []string
	CommonName string
	// Token is the name of a static token.
	Token string
	// Proxy is the name of the proxy that forwarded the certificate; "" without a proxy.
	Proxy string
	// Expires is when the proof expires; zero if never.
	Expires time.Time
}

// Name returns a short name for logs. Only the policy knows which of several certificate names it uses. The common
// name comes last, because no rule uses it.
func (i Identity) Name() string {
	names := append([]string{i.SPIFFE, i.Subject, i.Token}, i.DNS...)
	for _, name := range append(names, i.CommonName) {
		if name != "" {
			return i.Through(name)
		}
	}
	return i.Through(string(i.Source))
}

// Through returns a name of the identity, with that of the proxy if there is one.
func (i Identity) Through(name string) string {
	if i.Proxy == "" {
		return name
	}
	return name + " through " + i.Proxy
}

// Key distinguishes identities with the same name: it includes the source and the issuer.
func (i Identity) Key() string {
	parts := append([]string{string(i.Source), i.Issuer, i.SPIFFE, i.Subject, i.Token, i.CommonName}, i.DNS...)
	return strings.Join(parts, "\x00")
}

// Proof is the evidence that comes with a call.
type Proof struct {
	// Bearer is the token of "authorization: Bearer TOKEN"; empty if there is none.
	Bearer string
	// Certificate is the verified client certificate; nil if there is none. Chain is the verified chain from it to
	// the root.
	Certificate *x509.Certificate
	Chain       []*x509.Certificate
	// Forwarded are the values of MetadataForwarded. They count only if Certificate is a proxy's.
	Forwarded []string
	// Mesh reports that the certificate was verified with a CA of the control plane, not with one of the server's.
	Mesh bool
	// Login is the login of a browser, whose cookie takes the place of the other proofs; nil if there is none.
	Login *Login
}

// Authenticator checks one kind of proof.
type Authenticator interface {
	// Authenticate returns the identity of a proof. It returns nil and no error for a proof of another kind, and an
	// error that may be shown to the caller for an invalid one.
	Authenticate(ctx context.Context, proof Proof) (*Identity, error)
}
