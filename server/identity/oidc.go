package identity

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

const (
	// DefaultSkew is the permitted difference between the clocks of an issuer and this server.
	DefaultSkew = 30 * time.Second
	// maxJWT is the maximum length of a token.
	maxJWT = 16 << 10
	// maxIssuerReply bounds the size of an issuer's reply.
	maxIssuerReply = 1 << 20
	issuerTimeout  = 10 * time.Second
	// keyEvery is the minimum interval of requests for an issuer's keys, so that tokens with invented key ids cause
	// no load.
	keyEvery = 10 * time.Second
	// retryEvery is the interval of requests to an issuer that is not reachable.
	retryEvery = 5 * time.Second
	// DefaultKeysMaxAge is the default of Issuer.KeysMaxAge.
	DefaultKeysMaxAge = 15 * time.Minute
	// refreshShare is the part of KeysMaxAge after which keys are fetched again; the rest covers an outage of the
	// issuer.
	refreshShare = 3
	// refreshTimeout bounds a refresh while older keys are still valid.
	refreshTimeout = 3 * time.Second
	// maxTime is the latest accepted time in a claim, in seconds: the year 9999. Larger numbers have no time.Time,
	// and their conversion depends on the machine.
	maxTime = 253402300799
)

// Algorithms are the supported signature algorithms. Those with a shared secret, and "none", are excluded.
var Algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512,
	oidc.EdDSA,
}

// DefaultAlgorithms are the default signature algorithms.
var DefaultAlgorithms = []string{oidc.RS256, oidc.ES256}

// Issuer configures the checks for JSON web tokens of one issuer.
type Issuer struct {
	// URL is the issuer's URL, exactly as in "iss". Its configuration is found below it.
	URL string
	// Audiences are the accepted audiences.
	Audiences []string
	// Algorithms are the accepted signature algorithms.
	Algorithms []string
	// Skew is the permitted difference between the clocks.
	Skew time.Duration
	// KeysMaxAge is how long the issuer's keys are used after they were fetched, and so the longest time that a
	// withdrawn key is accepted. They are fetched again after a third of it, or sooner if the issuer's Cache-Control
	// requires it. If the issuer does not reply before KeysMaxAge has passed, its tokens are refused. The default is
	// 15 minutes.
	KeysMaxAge time.Duration
	// Now is the clock.
	Now func() time.Time
}

// OIDC authenticates tokens of one issuer. It contacts the issuer when the first token comes, so that a server can
// start without it. It is safe for concurrent use.
type OIDC struct {
	issuer Issuer
	client *http.Client

	// fetching is held by the one caller that contacts the issuer.
	fetching chan struct{}

	mu       sync.Mutex
	verifier *oidc.IDTokenVerifier // nil until the issuer has answered once
	urls     endpoints             // of the same answer
	fetched  time.Time             // when the verifier's keys were fetched
	refresh  time.Time             // when to fetch them again
	failed   error                 // of the last attempt; nil if it succeeded
	retry    time.Time             // earliest time of the next attempt
}

// NewOIDC returns the authenticator of an issuer.
func NewOIDC(issuer Issuer) *OIDC {
	if issuer.KeysMaxAge <= 0 {
		issuer.KeysMaxAge = DefaultKeysMaxAge
	}
	client := &http.Client{
		Timeout: issuerTimeout, Transport: bounded{http.DefaultTransport},
		// A redirect could lead to another party's keys, and the code and the secret of a login to that party.
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("issuers may not redirect") },
	}
	return &OIDC{issuer: issuer, client: client, fetching: make(chan struct{}, 1)}
}

// URL returns the issuer's URL.
func (o *OIDC) URL() string { return o.issuer.URL }

// Reach fetches the issuer's configuration and keys, unless they are fresh. The error says why tokens cannot be
// verified.
func (o *OIDC) Reach(ctx context.Context) error {
	_, err := o.ready(ctx)
	return err
}

// Authenticate implements Authenticator.
func (o *OIDC) Authenticate(ctx context.Context, proof Proof) (*Identity, error) {
	if issuerOf(proof.Bearer) != o.issuer.URL {
		return nil, nil
	}
	return o.verify(ctx, proof.Bearer, o.issuer.Audiences)
}

// verify returns the identity of a token for one of the audiences.
func (o *OIDC) verify(ctx context.Context, raw string, audiences []string) (*Identity, error) {
	verifier, err := o.ready(ctx)
	if err != nil {
		return nil, fault.New(fault.Unauthenticated,
			"the keys of the token's issuer are not available").WithRetry(retryEvery)
	}
	token, err := verifier.Verify(ctx, raw)
	if err != nil {
		if newer := o.newer(ctx, verifier); newer != nil {
			token, err = newer.Verify(ctx, raw)
		}
	}
	if err != nil {
		// Details would only help an attacker who forges tokens.
		return nil, fault.New(fault.Unauthenticated, "the token is not valid")
	}
	claims := map[string]any{}
	if err := token.Claims(&claims); err != nil {
		return nil, fault.New(fault.Unauthenticated, "the token's claims are malformed")
	}
	if err := o.checkTimes(token, claims); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(token.Audience, func(a string) bool { return slices.Contains(audiences, a) }) {
		return nil, fault.New(fault.Unauthenticated, "the token is for another audience")
	}
	if token.Subject == "" {
		return nil, fault.New(fault.Unauthenticated, "the token has no subject")
	}
	return &Identity{
		Source: JWT, Issuer: token.Issuer, Subject: token.Subject, Claims: claims,
		Expires: token.Expiry.Add(o.issuer.Skew),
	}, nil
}

// checkTimes replaces the library's check, which has no or a fixed skew.
func (o *OIDC) checkTimes(token *oidc.IDToken, claims map[string]any) error {
	now := o.issuer.Now()
	for _, claim := range []string{"exp", "nbf", "iat"} {
		at, ok := claims[claim].(float64)
		if claims[claim] != nil && (!ok || at < 0 || at > maxTime) {
			return fault.New(fault.Unauthenticated, "the token's claim %q is not a time in seconds", claim)
		}
		if claim != "exp" && ok && now.Add(o.issuer.Skew).Before(time.Unix(int64(at), 0)) {
			return fault.New(fault.Unauthenticated, "the token is not valid yet")
		}
	}
	if claims["exp"] == nil || !now.Before(token.Expiry.Add(o.issuer.Skew)) {
		return fault.New(fault.Unauthenticated, "the token has expired")
	}
	return nil
}

// ready returns a verifier with keys younger than KeysMaxAge. One caller at a time contacts the issuer; the others
// use the existing keys and wait only if there are none.
func (o *OIDC) ready(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	usable, fresh := o.current()
	if fresh {
		return usable, nil
	}
	if usable != nil {
		select {
		case o.fetching <- struct{}{}:
		default:
			return usable, nil
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, refreshTimeout)
		defer cancel()
	} else {
		select {
		case o.fetching <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	defer func() { <-o.fetching }()
	if usable, fresh = o.current(); fresh {
		return usable, nil
	}
	o.fetch(ctx)
	usable, _ = o.current()
	if usable == nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		return nil, o.failed
	}
	return usable, nil
}

// newer returns a verifier with keys that were fetched after those of another one, which does not accept a token: the
// issuer may have new keys. It returns nil if there is none, and fetches keys at most once in keyEvery.
func (o *OIDC) newer(ctx context.Context, than *oidc.IDTokenVerifier) *oidc.IDTokenVerifier {
	select {
	case o.fetching <- struct{}{}:
	case <-ctx.Done():
		return nil
	}
	defer func() { <-o.fetching }()
	usable, _ := o.current()
	o.mu.Lock()
	due := o.issuer.Now().Sub(o.fetched) >= keyEvery
	o.mu.Unlock()
	if usable == than && due {
		o.fetch(ctx)
		usable, _ = o.current()
	}
	if usable == than {
		return nil
	}
	return usable
}

// current returns the verifier, nil if its keys are too old, and whether no refresh is due.
func (o *OIDC) current() (usable *oidc.IDTokenVerifier, fresh bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now := o.issuer.Now()
	if o.verifier == nil || now.Sub(o.fetched) >= o.issuer.KeysMaxAge {
		return nil, false
	}
	return o.verifier, now.Before(o.refresh) || now.Before(o.retry)
}

// fetch fetches the issuer's configuration and keys, unless it has failed recently.
func (o *OIDC) fetch(ctx context.Context) {
	o.mu.Lock()
	wait := o.failed != nil && o.issuer.Now().Before(o.retry)
	o.mu.Unlock()
	if wait {
		return
	}
	began := o.issuer.Now()
	verifier, urls, fresh, err := o.discover(ctx)
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.failed, o.retry = fmt.Errorf("issuer %q: %w", o.issuer.URL, err), o.issuer.Now().Add(retryEvery)
		return
	}
	o.verifier, o.urls, o.failed, o.retry = verifier, urls, nil, time.Time{}
	o.fetched, o.refresh = began, began.Add(fresh)
}

// known returns the issuer's URLs for logins, once ready has returned a verifier.
func (o *OIDC) known() endpoints {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.urls
}

// discover fetches the issuer's configuration and keys. It returns a verifier, the URLs for logins, and how long its
// keys are fresh.
func (o *OIDC) discover(ctx context.Context) (*oidc.IDTokenVerifier, endpoints, time.Duration, error) {
	var urls endpoints
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, o.client), o.issuer.URL)
	if err != nil {
		return nil, urls, 0, err
	}
	var found struct {
		endpoints
		Keys string `json:"jwks_uri"`
	}
	if err := provider.Claims(&found); err != nil {
		return nil, urls, 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, found.Keys, nil)
	if err != nil {
		return nil, urls, 0, err
	}
	response, err := o.client.Do(request)
	if err != nil {
		return nil, urls, 0, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, urls, 0, fmt.Errorf("keys at %q: %s", found.Keys, response.Status)
	}
	set := &keys{}
	for _, algorithm := range o.issuer.Algorithms {
		set.algorithms = append(set.algorithms, jose.SignatureAlgorithm(algorithm))
	}
	if err := json.NewDecoder(response.Body).Decode(&set.JSONWebKeySet); err != nil {
		return nil, urls, 0, fmt.Errorf("keys at %q: %w", found.Keys, err)
	}
	verifier := oidc.NewVerifier(o.issuer.URL, set, &oidc.Config{
		SkipClientIDCheck: true, SkipExpiryCheck: true, // both are checked here
		SupportedSigningAlgs: o.issuer.Algorithms, Now: o.issuer.Now,
	})
	return verifier, found.endpoints, freshFor(response.Header, o.issuer.KeysMaxAge/refreshShare), nil
}

// freshFor returns how long Cache-Control permits using a reply, between keyEvery and most. Without Cache-Control it
// is most.
func freshFor(header http.Header, most time.Duration) time.Duration {
	fresh := most
	for directive := range strings.SplitSeq(strings.Join(header.Values("Cache-Control"), ","), ",") {
		name, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(directive)), "=")
		switch name {
		case "no-store", "no-cache":
			fresh = 0
		case "max-age":
			if seconds, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 31); err == nil {
				age, _ := strconv.ParseUint(header.Get("Age"), 10, 31)
				fresh = min(fresh, max(0, time.Duration(seconds)*time.Second-time.Duration(age)*time.Second))
			}
		}
	}
	return max(fresh, keyEvery)
}

// issuerOf returns the issuer in a token without verification; "" if the token is not a JSON web token.
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

// keys are an issuer's keys. It is an oidc.KeySet.
type keys struct {
	jose.JSONWebKeySet
	algorithms []jose.SignatureAlgorithm
}

// VerifySignature implements oidc.KeySet.
func (k *keys) VerifySignature(_ context.Context, token string) ([]byte, error) {
	signed, err := jose.ParseSigned(token, k.algorithms)
	if err != nil {
		return nil, err
	}
	id := signed.Signatures[0].Header.KeyID
	for _, key := range k.Keys {
		if id != "" && key.KeyID != id {
			continue
		}
		if payload, err := signed.Verify(&key); err == nil {
			return payload, nil
		}
	}
	return nil, errors.New("no key of the issuer has signed the token")
}
