package devissuer

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// start runs an issuer until the test ends.
func start(t *testing.T) *Issuer {
	t.Helper()
	i, err := New(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- i.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return i
}

func get(t *testing.T, change func(*http.Request), url string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	out, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Body.Close()
	text, err := io.ReadAll(out.Body)
	if err != nil {
		t.Fatal(err)
	}
	return out.StatusCode, string(text)
}

// A library of OpenID Connect finds the keys, and believes the tokens.
func TestTokens(t *testing.T) {
	t.Parallel()
	i := start(t)
	code, token := get(t, nil, i.URL()+"/token?audience=bridge&audience=other&subject=ann&groups=acme&email=a@b")
	if code != http.StatusOK {
		t.Fatalf("%d: %s", code, token)
	}
	provider, err := oidc.NewProvider(t.Context(), i.URL())
	if err != nil {
		t.Fatal(err)
	}
	id, err := provider.VerifierContext(t.Context(), &oidc.Config{ClientID: "bridge"}).Verify(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	var claims struct {
		Groups []string
		Email  string
	}
	if err := id.Claims(&claims); err != nil || id.Subject != "ann" || len(claims.Groups) != 1 ||
		claims.Groups[0] != "acme" || claims.Email != "a@b" {
		t.Errorf("%+v, %+v, %v", id, claims, err)
	}
	if life := id.Expiry.Sub(id.IssuedAt); life != DefaultLifetime {
		t.Errorf("it holds for %v", life)
	}
}

func TestMistakes(t *testing.T) {
	t.Parallel()
	i := start(t)
	for _, query := range []string{"", "audience=a", "subject=s", "audience=a&subject=s&lifetime=100h",
		"audience=a&subject=s&lifetime=x", "audience=a&subject=s&iss=me"} {
		if code, text := get(t, nil, i.URL()+"/token?"+query); code != http.StatusBadRequest {
			t.Errorf("%q: %d, %s", query, code, text)
		}
	}
	for name, change := range map[string]func(*http.Request){
		"another name": func(r *http.Request) { r.Host = "evil.example:80" },
		"a web page":   func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") },
	} {
		if code, _ := get(t, change, i.URL()+"/token?audience=a&subject=s"); code != http.StatusForbidden {
			t.Errorf("%s: %d", name, code)
		}
	}
	for _, address := range []string{"0.0.0.0:0", "example.com:0", "127.0.0.1"} {
		if _, err := New(t.Context(), address); err == nil {
			t.Errorf("%q is listened on", address)
		}
	}
	if token, err := i.Token(url.Values{"audience": {"a"}, "subject": {"s"}, "lifetime": {"1m"}}); err != nil ||
		strings.Count(token, ".") != 2 {
		t.Errorf("%q, %v", token, err)
	}
}
