package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// provider is an issuer on a loopback port, whose keys can be changed.
type provider struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex
	keys    []jose.JSONWebKey
	cache   string // the Cache-Control of the keys
	fetched atomic.Int32
	down    atomic.Bool
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{t: t}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		if p.down.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": p.URL, "jwks_uri": p.URL + "/keys", "authorization_endpoint": p.URL + "/a",
			"token_endpoint": p.URL + "/t",
			// An issuer's word on algorithms does not widen ours.
			"id_token_signing_alg_values_supported": []string{"RS256", "ES256", "HS256", "none"},
		})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		p.fetched.Add(1)
		if p.down.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.cache != "" {
			w.Header().Set("Cache-Control", p.cache)
		}
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: p.keys})
	})
	p.Server = httptest.NewServer(mux)
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	})
	return p
}

// key makes a key the issuer's, in place of those before.
func (p *provider) key(id string) *ecdsa.PrivateKey {
	p.t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keys = []jose.JSONWebKey{{Key: private.Public(), KeyID: id, Algorithm: "ES256", Use: "sig"}}
	return private
}

// sign makes a token.
func sign(t *testing.T, alg jose.SignatureAlgorithm, key any, id string, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: id}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// clock is a time that tests move.
type clock struct{ at atomic.Int64 }

func (c *clock) now() time.Time           { return time.Unix(c.at.Load(), 0) }
func (c *clock) forward(by time.Duration) { c.at.Add(int64(by.Seconds())) }

func (p *provider) authenticator(c *clock) *OIDC {
	return NewOIDC(Issuer{URL: p.URL, Audiences: []string{"bridge", "other"}, Algorithms: []string{"ES256"},
		Skew: 30 * time.Second, Now: c.now})
}

func TestJWT(t *testing.T) {
	t.Parallel()
	p, c := newProvider(t), new(clock)
	c.at.Store(1_000_000)
	key := p.key("k1")
	wrong, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	claims := func(change map[string]any) map[string]any {
		out := map[string]any{"iss": p.URL, "sub": "alice", "aud": "bridge", "exp": 1_000_060, "iat": 999_990,
			"groups": []string{"g"}}
		for name, value := range change {
			if out[name] = value; value == nil {
				delete(out, name)
			}
		}
		return out
	}
	es := func(change map[string]any) string { return sign(t, jose.ES256, key, "k1", claims(change)) }
	public, err := json.Marshal(p.keys[0])
	if err != nil {
		t.Fatal(err)
	}
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + strings.Split(es(nil), ".")[1] + "."
	o := p.authenticator(c)
	for name, tc := range map[string]struct {
		token string
		ok    bool
	}{
		"good":              {es(nil), true},
		"second audience":   {es(map[string]any{"aud": []string{"x", "other"}}), true},
		"expired, in skew":  {es(map[string]any{"exp": 999_980}), true},
		"expired":           {es(map[string]any{"exp": 999_960}), false},
		"never expires":     {es(map[string]any{"exp": nil}), false},
		"not yet, in skew":  {es(map[string]any{"nbf": 1_000_020}), true},
		"not yet":           {es(map[string]any{"nbf": 1_000_040}), false},
		"from the future":   {es(map[string]any{"iat": 1_000_040}), false},
		"absurdly not yet":  {es(map[string]any{"nbf": 1e300}), false},
		"absurd future":     {es(map[string]any{"iat": 1e300}), false},
		"absurd past":       {es(map[string]any{"iat": -1e300}), false},
		"absurd expiry":     {es(map[string]any{"exp": 1e300}), false},
		"expiry in words":   {es(map[string]any{"exp": "tomorrow"}), false},
		"other audience":    {es(map[string]any{"aud": "x"}), false},
		"no audience":       {es(map[string]any{"aud": nil}), false},
		"no subject":        {es(map[string]any{"sub": nil}), false},
		"other key":         {sign(t, jose.ES256, wrong, "k1", claims(nil)), false},
		"unknown key":       {sign(t, jose.ES256, wrong, "k9", claims(nil)), false},
		"unknown key id":    {sign(t, jose.ES256, key, "k9", claims(nil)), false},
		"other algorithm":   {sign(t, jose.RS256, rsaKey, "k1", claims(nil)), false},
		"public key as mac": {sign(t, jose.HS256, public, "k1", claims(nil)), false},
		"no signature":      {none, false},
		"cut":               {es(nil)[:len(es(nil))-4], false},
	} {
		id, err := o.Authenticate(t.Context(), Proof{Bearer: tc.token})
		switch {
		case tc.ok && (err != nil || id == nil || id.Subject != "alice" || id.Issuer != p.URL || id.Expires.IsZero()):
			t.Errorf("%s: %+v, %v", name, id, err)
		case !tc.ok && (id != nil || fault.ReasonOf(err) != fault.Unauthenticated):
			t.Errorf("%s: %+v, %v; want UNAUTHENTICATED", name, id, err)
		case !tc.ok && strings.Contains(err.Error(), tc.token[10:40]):
			t.Errorf("%s: the error tells the token", name)
		}
	}
	for _, other := range []string{"", "opaque", "a.b.c",
		sign(t, jose.ES256, key, "k1", claims(map[string]any{"iss": "https://o.example"}))} {
		if id, err := o.Authenticate(t.Context(), Proof{Bearer: other}); id != nil || err != nil {
			t.Errorf("%.20q is none of this issuer's: %v, %v", other, id, err)
		}
	}
}

// New keys of an issuer count at once, old ones no more; made-up key ids cost it nothing.
func TestKeysRotate(t *testing.T) {
	t.Parallel()
	p, c := newProvider(t), new(clock)
	c.at.Store(1_000_000)
	token := func(key crypto.Signer, id string) string {
		return sign(t, jose.ES256, key, id, map[string]any{"iss": p.URL, "sub": "a", "aud": "bridge", "exp": 2_000_000})
	}
	first, o := p.key("k1"), p.authenticator(c)
	if _, err := o.Authenticate(t.Context(), Proof{Bearer: token(first, "k1")}); err != nil {
		t.Fatal(err)
	}
	second := p.key("k2")
	c.forward(keyEvery)
	if _, err := o.Authenticate(t.Context(), Proof{Bearer: token(second, "k2")}); err != nil {
		t.Errorf("with the new key: %v", err)
	}
	if _, err := o.Authenticate(t.Context(), Proof{Bearer: token(first, "k1")}); err == nil {
		t.Error("the old key still counts")
	}
	before := p.fetched.Load()
	for range 50 {
		if _, err := o.Authenticate(t.Context(), Proof{Bearer: token(first, rand.Text())}); err == nil {
			t.Fatal("a made-up key counts")
		}
	}
	if n := p.fetched.Load() - before; n > 1 {
		t.Errorf("the issuer was asked %d times for made-up keys", n)
	}
}

// A server starts without its issuer, and finds it when it is back.
func TestIssuerThatIsDown(t *testing.T) {
	t.Parallel()
	p, c := newProvider(t), new(clock)
	c.at.Store(1_000_000)
	key, o := p.key("k1"), p.authenticator(c)
	token := sign(t, jose.ES256, key, "k1", map[string]any{"iss": p.URL, "sub": "a", "aud": "bridge", "exp": 2_000_000})
	p.down.Store(true)
	if _, err := o.Authenticate(t.Context(), Proof{Bearer: token}); fault.ReasonOf(err) != fault.Unauthenticated {
		t.Errorf("while it is down: %v", err)
	}
	p.down.Store(false)
	c.forward(keyEvery)
	if _, err := o.Authenticate(t.Context(), Proof{Bearer: token}); err != nil {
		t.Errorf("when it is back: %v", err)
	}
}

// A key that the issuer withdraws is refused within KeysMaxAge, also if no token with
// another key comes; sooner where the issuer's Cache-Control says so.
func TestKeysWithdrawn(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		cache         string
		still, refuse time.Duration
	}{
		"no header":      {"", 5*time.Minute - time.Second, 5 * time.Minute},
		"short max-age":  {"public, max-age=60", 59 * time.Second, time.Minute},
		"long max-age":   {"max-age=86400", 5*time.Minute - time.Second, 5 * time.Minute},
		"no-cache":       {"no-cache", keyEvery - time.Second, keyEvery},
		"unreadable age": {"max-age=soon", 5*time.Minute - time.Second, 5 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, c := newProvider(t), new(clock)
			p.cache = tc.cache
			c.at.Store(1_000_000)
			key, o := p.key("k1"), p.authenticator(c)
			token := sign(t, jose.ES256, key, "k1",
				map[string]any{"iss": p.URL, "sub": "a", "aud": "bridge", "exp": 2_000_000})
			if _, err := o.Authenticate(t.Context(), Proof{Bearer: token}); err != nil {
				t.Fatal(err)
			}
			p.key("k2")
			c.forward(tc.still)
			if _, err := o.Authenticate(t.Context(), Proof{Bearer: token}); err != nil {
				t.Errorf("after %v: %v, want the kept keys", tc.still, err)
			}
			c.forward(tc.refuse - tc.still)
			if _, err := o.Authenticate(t.Context(),
				Proof{Bearer: token}); fault.ReasonOf(err) != fault.Unauthenticated {
				t.Errorf("after %v: %v, want UNAUTHENTICATED", tc.refuse, err)
			}
		})
	}
}

// An issuer that stops answering is bridged with the kept keys, but no longer than
// KeysMaxAge.
func TestIssuerStopsAnswering(t *testing.T) {
	t.Parallel()
	p, c := newProvider(t), new(clock)
	c.at.Store(1_000_000)
	key, o := p.key("k1"), p.authenticator(c)
	token := sign(t, jose.ES256, key, "k1", map[string]any{"iss": p.URL, "sub": "a", "aud": "bridge", "exp": 2_000_000})
	authenticate := func() error {
		_, err := o.Authenticate(t.Context(), Proof{Bearer: token})
		return err
	}
	if err := authenticate(); err != nil {
		t.Fatal(err)
	}
	p.down.Store(true)
	c.forward(DefaultKeysMaxAge - time.Second)
	if err := authenticate(); err != nil {
		t.Errorf("within KeysMaxAge: %v", err)
	}
	c.forward(time.Second)
	if err := authenticate(); fault.ReasonOf(err) != fault.Unauthenticated {
		t.Errorf("past KeysMaxAge: %v, want UNAUTHENTICATED", err)
	}
	p.down.Store(false)
	c.forward(keyEvery)
	if err := authenticate(); err != nil {
		t.Errorf("when the issuer answers again: %v", err)
	}
}

// While one caller waits for an issuer that hangs, the others use the kept keys.
func TestIssuerHangs(t *testing.T) {
	t.Parallel()
	p, c := newProvider(t), new(clock)
	c.at.Store(1_000_000)
	key, o := p.key("k1"), p.authenticator(c)
	token := sign(t, jose.ES256, key, "k1", map[string]any{"iss": p.URL, "sub": "a", "aud": "bridge", "exp": 2_000_000})
	if _, err := o.Authenticate(t.Context(), Proof{Bearer: token}); err != nil {
		t.Fatal(err)
	}
	asked, answer := make(chan struct{}), make(chan struct{})
	o.client.Transport = roundTripper(func(*http.Request) (*http.Response, error) {
		close(asked)
		<-answer
		return nil, http.ErrHandlerTimeout
	})
	c.forward(DefaultKeysMaxAge / 2)
	first := make(chan error)
	go func() {
		_, err := o.Authenticate(t.Context(), Proof{Bearer: token})
		first <- err
	}()
	<-asked
	for range 3 {
		if _, err := o.Authenticate(t.Context(), Proof{Bearer: token}); err != nil {
			t.Errorf("beside a caller that waits: %v", err)
		}
	}
	close(answer)
	if err := <-first; err != nil {
		t.Errorf("the caller that waited: %v, want the kept keys", err)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
