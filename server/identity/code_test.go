package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
)

// An ID token logs in only the browser whose nonce it has, for this client, by the issuer's key.
func TestCodeFlow(t *testing.T) {
	t.Parallel()
	p, c := newProvider(t), new(clock)
	c.at.Store(1_000_000)
	key := p.key("k1")
	wrong, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	answers := make(chan http.HandlerFunc, 1)
	asked := make(chan url.Values, 1)
	p.Config.Handler.(*http.ServeMux).HandleFunc("/t", func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		asked <- r.PostForm
		(<-answers)(w, r)
	})
	token := func(key *ecdsa.PrivateKey, change map[string]any) http.HandlerFunc {
		claims := map[string]any{"iss": p.URL, "aud": "console", "sub": "ann", "exp": 1_000_600, "nonce": "n"}
		maps.Copy(claims, change)
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"access_token": "x", "token_type": "Bearer",
				"id_token": sign(t, jose.ES256, key, "k1", claims)})
		}
	}
	plain := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Location", p.URL+"/elsewhere")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	f := NewCodeFlow(p.authenticator(c), Client{ID: "console", Scopes: []string{"groups"}, Lifetime: time.Hour})
	a := Attempt{State: "s", Nonce: "n", Verifier: strings.Repeat("v", 43), Redirect: "http://localhost/auth/callback"}
	to, err := f.Begin(t.Context(), a)
	if err != nil || !strings.HasPrefix(to, p.URL+"/a?") || strings.Contains(to, a.Verifier) {
		t.Fatalf("%s, %v", to, err)
	}
	answers <- token(key, nil)
	id, err := f.Finish(t.Context(), a, "code")
	if err != nil || id.Subject != "ann" || id.Source != JWT || !id.Expires.Equal(c.now().Add(time.Hour)) {
		t.Fatalf("%+v, %v", id, err)
	}
	if form := <-asked; form.Get("code_verifier") != a.Verifier || form.Get("code") != "code" ||
		form.Get("redirect_uri") != a.Redirect || form.Get("client_id") != "console" {
		t.Errorf("the exchange: %v", form)
	}
	for name, answer := range map[string]http.HandlerFunc{
		"another nonce":    token(key, map[string]any{"nonce": "m"}),
		"no nonce":         token(key, map[string]any{"nonce": nil}),
		"another audience": token(key, map[string]any{"aud": "bridge"}),
		"another client":   token(key, map[string]any{"aud": []string{"console", "x"}, "azp": "x"}),
		"another issuer":   token(key, map[string]any{"iss": "https://evil.example"}),
		"another key":      token(wrong, nil),
		"expired":          token(key, map[string]any{"exp": 900_000}),
		"no subject":       token(key, map[string]any{"sub": ""}),
		"no ID token":      plain(200, `{"access_token":"x","token_type":"Bearer"}`),
		"refused":          plain(400, `{"error":"invalid_grant","error_description":"a-secret"}`),
		"redirected":       plain(307, ""),
		"not JSON":         plain(200, "<html>"),
	} {
		answers <- answer
		_, err := f.Finish(t.Context(), a, "code")
		<-asked
		if fault.ReasonOf(err) != fault.Unauthenticated || strings.Contains(err.Error(), "a-secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if end := f.End(t.Context(), "http://localhost/"); end != "" {
		t.Errorf("an issuer without logout ends sessions at %q", end)
	}
}
