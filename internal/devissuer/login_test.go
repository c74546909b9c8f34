package devissuer

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/oauth2"
)

// The form brings each value of the query back in its order of names, and a value cannot leave its attribute.
func TestForm(t *testing.T) {
	t.Parallel()
	page := form(url.Values{"state": {`"><b>`, "2"}, "nonce": {"a&b"}, `"x`: {"'"}})
	want := `
<input type="hidden" name="&#34;x" value="&#39;">
<input type="hidden" name="nonce" value="a&amp;b">
<input type="hidden" name="state" value="&#34;&gt;&lt;b&gt;">
<input type="hidden" name="state" value="2">
`
	if !strings.Contains(page, want) {
		t.Errorf("the form is\n%s\nwant in it\n%s", page, want)
	}
}

// A code is for one exchange, with the verifier, the client and the redirect of its request.
func TestCodes(t *testing.T) {
	t.Parallel()
	i := start(t)
	verifier := oauth2.GenerateVerifier()
	asked := url.Values{"response_type": {"code"}, "client_id": {"console"}, "state": {"s"}, "nonce": {"n"},
		"redirect_uri": {"http://127.0.0.1:1/back?x=y"}, "code_challenge_method": {"S256"},
		"code_challenge": {oauth2.S256ChallengeFromVerifier(verifier)}}
	if status, text := get(t, nil, i.URL()+"/authorize?"+asked.Encode()); status != http.StatusOK ||
		!strings.Contains(text, `name="subject"`) || !strings.Contains(text, `name="state" value="s"`) {
		t.Errorf("%d: %s", status, text)
	}
	asked.Set("subject", "ann")
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	code := func() string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, i.URL()+"/authorize?"+asked.Encode(), nil)
		if err != nil {
			t.Fatal(err)
		}
		out, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = out.Body.Close()
		to, err := out.Location()
		if err != nil {
			t.Fatal(err)
		}
		query := to.Query()
		if query.Get("state") != "s" || query.Get("x") != "y" || query.Get("iss") != i.URL() {
			t.Fatal(to)
		}
		return query.Get("code")
	}
	exchange := func(change string, to ...string) (int, string) {
		t.Helper()
		body := url.Values{"grant_type": {"authorization_code"}, "client_id": {"console"}, "code_verifier": {verifier},
			"redirect_uri": asked["redirect_uri"]}
		if change != "" {
			body[change] = to
		}
		if !body.Has("code") {
			body.Set("code", code())
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, i.URL()+"/token",
			strings.NewReader(body.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		out, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = out.Body.Close() }()
		text, err := io.ReadAll(out.Body)
		if err != nil {
			t.Fatal(err)
		}
		return out.StatusCode, string(text)
	}
	once := code()
	if status, text := exchange("code", once); status != http.StatusOK || !strings.Contains(text, `"id_token"`) {
		t.Errorf("%d: %s", status, text)
	}
	for name, change := range map[string][]string{"used": {"code", once}, "unknown": {"code", "x"},
		"verifier": {"code_verifier", "x"}, "client": {"client_id", "x"},
		"redirect": {"redirect_uri", "http://127.0.0.1:2/"}, "grant": {"grant_type", "password"}} {
		if status, text := exchange(change[0], change[1]); status != http.StatusBadRequest {
			t.Errorf("%s: %d: %s", name, status, text)
		}
	}
	for name, change := range map[string][]string{"another machine": {"redirect_uri", "https://evil.example/"},
		"without PKCE": {"code_challenge", ""}, "implicit": {"response_type", "token"}} {
		bad := url.Values{}
		for key, values := range asked {
			bad[key] = values
		}
		bad.Set(change[0], change[1])
		if status, text := get(t, nil, i.URL()+"/authorize?"+bad.Encode()); status != http.StatusBadRequest {
			t.Errorf("%s: %d: %s", name, status, text)
		}
	}
	status, _ := get(t, nil, i.URL()+"/logout?post_logout_redirect_uri=https://evil.example")
	if status != http.StatusBadRequest {
		t.Errorf("logout: %d", status)
	}
}
