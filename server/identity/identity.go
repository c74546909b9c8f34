// Package identity finds out who calls, from a client certificate, a JSON web token or a
// static token. What whoever it is may do, package policy says.
package identity

import (
	"context"
	"crypto/x509"
	"strings"
	"time"
)

// Source is how somebody proved who they are.
type Source string

// The sources.
const (
	// Socket is a connection that only the own user can make.
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

// Identity is who calls. Nothing in it is secret.
type Identity struct {
	// Source is how that was proven.
	Source Source
	// Issuer and Subject are of a JSON web token, Claims all that it says.
	Issuer, Subject string
	Claims          map[string]any
	// SPIFFE is the SPIFFE id of a certificate, DNS its names, CommonName its subject's.
	SPIFFE     string
	DNS        []string
	CommonName string
	// Token is the name of a static token.
	Token string
	// Expires is when the proof ends; zero if it does not.
	Expires time.Time
}

// Name is the identity in a few words, for logs. Which of several names of a certificate the
// policy goes by, only the policy knows. The common name comes last: no rule looks at it.
func (i Identity) Name() string {
	names := append([]string{i.SPIFFE, i.Subject, i.Token}, i.DNS...)
	for _, name := range append(names, i.CommonName) {
		if name != "" {
			return name
		}
	}
	return string(i.Source)
}

// Key tells identities apart that may have the same name: it has the source and the issuer too.
func (i Identity) Key() string {
	parts := append([]string{string(i.Source), i.Issuer, i.SPIFFE, i.Subject, i.Token, i.CommonName}, i.DNS...)
	return strings.Join(parts, "\x00")
}

// Proof is what a call brings.
type Proof struct {
	// Bearer is the token of "authorization: Bearer TOKEN"; empty without one.
	Bearer string
	// Certificate is the client's, verified; nil without one. Chain is it and those that it was
	// verified by, up to the root.
	Certificate *x509.Certificate
	Chain       []*x509.Certificate
}

// Authenticator knows one kind of proof.
type Authenticator interface {
	// Authenticate returns who the proof is of. It returns nil and no error where the proof
	// is of another kind, and an error that is fit for the caller where it is bad.
	Authenticate(ctx context.Context, proof Proof) (*Identity, error)
}
