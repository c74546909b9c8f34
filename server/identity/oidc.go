package identity

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/internal/reason"
)

const (
	// DefaultSkew is how far the clocks of an issuer and of this server may be apart.
	DefaultSkew = 30 * time.Second
	// maxJWT is how long a token may be.
	maxJWT = 16 << 10
	// maxIssuerReply bounds what an issuer may answer.
	maxIssuerReply = 1 << 20
	issuerTimeout  = 10 * time.Second
	// keyEvery is how often an issuer is asked for its keys at most: a token with a made-up
	// key id costs it nothing.
	keyEvery = 10 * time.Second
	// retryEvery is how often an issuer that cannot be reached is tried.
	retryEvery = 5 * time.Second
)

// Algorithms are those that a token may be signed with. What needs a shared secret, and
// "none", is not among them.
var Algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA,
}

// DefaultAlgorithms are those that are allowed where none are named.
var DefaultAlgorithms = []string{oidc.RS256, oidc.ES256}

// Issuer is how the JSON web tokens of one issuer are checked.
type Issuer struct {
	// URL is the issuer's, exactly as in "iss". Its configuration is found below it.
	URL string
	// Audiences are those of which a token has to be for one.
	Audiences []string
	// Algorithms are those that a token may be signed with.
	Algorithms []string
	// Skew is how far the clocks may be apart.
	Skew time.Duration
	// Client asks the issuer; nil is a client of its own. Tests give theirs.
	Client *http.Client
	// Now tells the time.
	Now func() time.Time
}

// OIDC knows the tokens of one issuer. The issuer is first asked when the first token
// comes, so that a server starts without it.
type OIDC struct {
	issuer Issuer
	client *http.Client

	mu       sync.Mutex
	verifier *oidc.IDTokenVerifier
	failed   error
	retry    time.Time
}

// NewOIDC returns the authenticator of an issuer.
func NewOIDC(issuer Issuer) *OIDC {
	client := issuer.Client
	if client == nil {
		client = &http.Client{}
	}
	limited := *client
	limited.Timeout = issuerTimeout
	limited.Transport = &sparing{next: client.Transport, now: issuer.Now, kept: map[string]*kept{}}
	// A redirect could lead to keys of somebody else's.
	limited.CheckRedirect = func(*http.Request, []*http.Request) error { return errors.New("issuers may not redirect") }
	return &OIDC{issuer: issuer, client: &limited}
}

// Authenticate implements Authenticator.
func (o *OIDC) Authenticate(ctx context.Context, proof Proof) (*Identity, error) {
	if issuerOf(proof.Bearer) != o.issuer.URL {
		return nil, nil
	}
	verifier, err := o.ready(ctx)
	if err != nil {
		return nil, fault.New(reason.Unauthenticated, "the token's issuer cannot be asked for its keys").WithRetry(retryEvery)
	}
	token, err := verifier.Verify(oidc.ClientContext(ctx, o.client), proof.Bearer)
	if err != nil {
		// What exactly is wrong helps only whoever makes tokens up.
		return nil, fault.New(reason.Unauthenticated, "the token is not valid")
	}
	claims := map[string]any{}
	if err := token.Claims(&claims); err != nil {
		return nil, fault.New(reason.Unauthenticated, "the token's claims are not readable")
	}
	if err := o.checkTimes(token, claims); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(token.Audience, func(a string) bool { return slices.Contains(o.issuer.Audiences, a) }) {
		return nil, fault.New(reason.Unauthenticated, "the token is for another audience")
	}
	if token.Subject == "" {
		return nil, fault.New(reason.Unauthenticated, "the token has no subject")
	}
	return &Identity{
		Source: JWT, Issuer: token.Issuer, Subject: token.Subject, Claims: claims, Expires: token.Expiry.Add(o.issuer.Skew),
	}, nil
}

// checkTimes does what the library does with no, or a fixed, skew.
func (o *OIDC) checkTimes(token *oidc.IDToken, claims map[string]any) error {
	now := o.issuer.Now()
	if claims["exp"] == nil || !now.Before(token.Expiry.Add(o.issuer.Skew)) {
		return fault.New(reason.Unauthenticated, "the token has expired")
	}
	for _, claim := range []string{"nbf", "iat"} {
		at, ok := claims[claim].(float64)
		if claims[claim] != nil && (!ok || now.Add(o.issuer.Skew).Before(time.Unix(int64(at), 0))) {
			return fault.New(reason.Unauthenticated, "the token is not valid yet")
		}
	}
	return nil
}

// ready returns what verifies tokens, once the issuer has been reached.
func (o *OIDC) ready(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.issuer.Now()
	switch {
	case o.verifier != nil:
		return o.verifier, nil
	case o.failed != nil && now.Before(o.retry):
		return nil, o.failed
	}
	// The provider keeps the context for as long as it lives.
	lasting := oidc.ClientContext(context.WithoutCancel(ctx), o.client)
	provider, err := oidc.NewProvider(lasting, o.issuer.URL)
	if err != nil {
		o.failed, o.retry = fmt.Errorf("issuer %q: %w", o.issuer.URL, err), now.Add(retryEvery)
		return nil, o.failed
	}
	o.verifier = provider.VerifierContext(lasting, &oidc.Config{
		SkipClientIDCheck: true, SkipExpiryCheck: true, // both are checked here
		SupportedSigningAlgs: o.issuer.Algorithms, Now: o.issuer.Now,
	})
	return o.verifier, nil
}

// issuerOf returns who a token says that it is of, "" if it is no JSON web token. It is
// only believed once the signature has been checked.
func issuerOf(token string) string {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || len(token) > maxJWT {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	return claims.Issuer
}

// sparing asks an issuer for the same thing only every so often, and takes no endless
// answers.
type sparing struct {
	next http.RoundTripper
	now  func() time.Time

	mu   sync.Mutex
	kept map[string]*kept
}

type kept struct {
	at   time.Time
	head *http.Response
	body []byte
}

// RoundTrip implements http.RoundTripper.
func (s *sparing) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	url := r.URL.String()
	if k := s.kept[url]; k != nil && s.now().Sub(k.at) < keyEvery {
		return k.response(r), nil
	}
	next := s.next
	if next == nil {
		next = http.DefaultTransport
	}
	response, err := next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxIssuerReply+1))
	if err == nil && len(body) > maxIssuerReply {
		err = fmt.Errorf("the issuer's reply has more than %d bytes", maxIssuerReply)
	}
	if err != nil {
		return nil, err
	}
	k := &kept{at: s.now(), head: response, body: body}
	s.kept[url] = k
	return k.response(r), nil
}

func (k *kept) response(r *http.Request) *http.Response {
	out := *k.head
	out.Request, out.Body = r, io.NopCloser(bytes.NewReader(k.body))
	return &out
}
