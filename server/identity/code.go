package identity

import (
	"context"
	"crypto/subtle"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// Client is this server as a client of an issuer, for logins of browsers.
type Client struct {
	// ID is the client's id at the issuer, and Secret its secret; "" for a public client.
	ID, Secret string
	// Scopes are the scopes to ask for, in addition to openid.
	Scopes []string
	// Lifetime is how long a login lasts. By default it ends with the ID token.
	Lifetime time.Duration
}

// CodeFlow logs browsers in at an issuer by the authorization code flow with PKCE. It is safe for concurrent use.
type CodeFlow struct {
	oidc   *OIDC
	client Client
}

// Attempt is one login at an issuer. Its fields are secrets, except for Redirect.
type Attempt struct {
	// State and Nonce tie the issuer's answer and its token to this attempt, Verifier the code.
	State, Nonce, Verifier string
	// Redirect is the URL to which the issuer sends the browser.
	Redirect string
}

// endpoints are an issuer's URLs for logins.
type endpoints struct {
	Authorization string `json:"authorization_endpoint"`
	Token         string `json:"token_endpoint"`
	EndSession    string `json:"end_session_endpoint"`
	// Methods are the ways in which clients authenticate; by default client_secret_basic.
	Methods []string `json:"token_endpoint_auth_methods_supported"`
}

// NewCodeFlow returns the logins at the issuer of o.
func NewCodeFlow(o *OIDC, c Client) *CodeFlow {
	return &CodeFlow{oidc: o, client: c}
}

// Issuer returns the issuer's URL.
func (f *CodeFlow) Issuer() string { return f.oidc.issuer.URL }

// Begin returns the URL at the issuer to which a browser goes to log in.
func (f *CodeFlow) Begin(ctx context.Context, a Attempt) (string, error) {
	config, err := f.config(ctx, a.Redirect)
	if err != nil {
		return "", err
	}
	return config.AuthCodeURL(a.State, oauth2.SetAuthURLParam("nonce", a.Nonce),
		oauth2.S256ChallengeOption(a.Verifier)), nil
}

// Finish exchanges the code that the issuer gave the browser for the browser's identity.
func (f *CodeFlow) Finish(ctx context.Context, a Attempt, code string) (*Identity, error) {
	config, err := f.config(ctx, a.Redirect)
	if err != nil {
		return nil, err
	}
	// The library's error has the issuer's answer, which may be a secret.
	token, err := config.Exchange(context.WithValue(ctx, oauth2.HTTPClient, f.oidc.client), code,
		oauth2.VerifierOption(a.Verifier))
	if err != nil {
		return nil, fault.New(fault.Unauthenticated, "the issuer did not accept the login")
	}
	raw, ok := token.Extra("id_token").(string)
	if !ok || issuerOf(raw) != f.oidc.issuer.URL {
		return nil, fault.New(fault.Unauthenticated, "the issuer sent no ID token of its own")
	}
	id, err := f.oidc.verify(ctx, raw, []string{f.client.ID})
	if err != nil {
		return nil, err
	}
	nonce, _ := id.Claims["nonce"].(string)
	if subtle.ConstantTimeCompare([]byte(nonce), []byte(a.Nonce)) != 1 {
		return nil, fault.New(fault.Unauthenticated, "the ID token is of another login")
	}
	if by, given := id.Claims["azp"]; given && by != f.client.ID {
		return nil, fault.New(fault.Unauthenticated, "the ID token was issued to another client")
	}
	if f.client.Lifetime > 0 {
		id.Expires = f.oidc.issuer.Now().Add(f.client.Lifetime)
	}
	return id, nil
}

// End returns the URL at the issuer to which a browser goes to log out there too; "" if the issuer has none. The
// issuer may send the browser back to a URL.
func (f *CodeFlow) End(ctx context.Context, back string) string {
	if _, err := f.oidc.ready(ctx); err != nil {
		return ""
	}
	to, err := url.Parse(f.oidc.known().EndSession)
	if err != nil || to.Host == "" || !f.trusts(to) {
		return ""
	}
	query := to.Query()
	query.Set("client_id", f.client.ID)
	query.Set("post_logout_redirect_uri", back)
	to.RawQuery = query.Encode()
	return to.String()
}

// config returns the client at the issuer.
func (f *CodeFlow) config(ctx context.Context, redirect string) (*oauth2.Config, error) {
	if _, err := f.oidc.ready(ctx); err != nil {
		return nil, fault.New(fault.Unauthenticated, "the issuer is not available").WithRetry(retryEvery)
	}
	at := f.oidc.known()
	for _, endpoint := range []string{at.Authorization, at.Token} {
		if u, err := url.Parse(endpoint); err != nil || u.Host == "" || !f.trusts(u) {
			return nil, fault.New(fault.Unauthenticated, "the issuer offers no logins")
		}
	}
	return &oauth2.Config{
		ClientID: f.client.ID, ClientSecret: f.client.Secret, RedirectURL: redirect,
		Endpoint: oauth2.Endpoint{AuthURL: at.Authorization, TokenURL: at.Token, AuthStyle: f.style(at)},
		Scopes:   append([]string{"openid"}, f.client.Scopes...),
	}, nil
}

// style returns how the client authenticates. It does not try one way after the other, because a code is for one use.
func (f *CodeFlow) style(at endpoints) oauth2.AuthStyle {
	if f.client.Secret == "" || len(at.Methods) > 0 && !slices.Contains(at.Methods, "client_secret_basic") {
		return oauth2.AuthStyleInParams
	}
	return oauth2.AuthStyleInHeader
}

// trusts reports whether an endpoint has TLS like the issuer.
func (f *CodeFlow) trusts(u *url.URL) bool {
	return u.Scheme == "https" || u.Scheme == "http" && strings.HasPrefix(f.oidc.issuer.URL, "http://")
}

// bounded limits the size of replies.
type bounded struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.next.RoundTrip(r)
	if err != nil {
		return nil, fmt.Errorf("issuer: %w", err)
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(response.Body, maxIssuerReply), response.Body}
	return response, nil
}
