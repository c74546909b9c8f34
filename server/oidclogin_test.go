package server_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/internal/devissuer"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
)

// person is a browser with cookies, at a server with logins at an issuer.
type person struct {
	*visitor
	issuer *devissuer.Issuer
	policy *policy.Store
	path   string
}

// atIssuer starts an issuer and a server. loginSection is the policy's section of the client.
func atIssuer(t *testing.T, loginSection string) (*testSite, *person) {
	t.Helper()
	i, err := devissuer.New(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- i.Run(ctx) }()
	t.Cleanup(func() {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	p := &person{issuer: i, path: filepath.Join(dir, "policy")}
	p.write(t, loginSection)
	write(t, filepath.Join(dir, "secret"), []byte("a-client's-secret\n"))
	if p.policy, err = policy.Open(p.path, slog.New(slog.DiscardHandler), time.Now); err != nil {
		t.Fatal(err)
	}
	s := startSite(t, server.Config{Policy: p.policy})
	p.visitor = s.visitor(t)
	p.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	p.restart()
	return s, p
}

// restart forgets the cookies.
func (p *person) restart() { p.client.Jar, _ = cookiejar.New(nil) }

func (p *person) write(t *testing.T, loginSection string) {
	t.Helper()
	write(t, p.path, []byte(`version: 1
identity:
  oidc: [{issuer: "`+p.issuer.URL()+`", audiences: [api], insecure_http: true, login: `+loginSection+`}]
tenants:
  acme: {members: [{issuer: "`+p.issuer.URL()+`", claims: {groups: agents}, role: participant}]}
`))
}

// navigate sends a GET request as navigation from a page, and returns where it leads.
func (p *person) navigate(where, from string) (to string, got response) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, where, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Sec-Fetch-Site", from)
	req.Header.Set("Sec-Fetch-Mode", "navigate")
	req.Header.Set("Sec-Fetch-Dest", "document")
	resp, err := p.client.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.Header.Get("Location"), response{resp, textOf(p.t, resp)}
}

// atTheIssuer begins a login and returns the URL by which the browser comes back from the issuer.
func (p *person) atTheIssuer(query string) string {
	p.t.Helper()
	to, got := p.navigate(p.base+"/auth/oidc?"+query, "same-origin")
	if got.StatusCode != http.StatusSeeOther || !strings.HasPrefix(to, p.issuer.URL()+"/authorize?") {
		p.t.Fatalf("%s: %s", got.Status, got.body)
	}
	back, got := p.navigate(to+"&subject=ann&groups=agents", "cross-site")
	if got.StatusCode != http.StatusSeeOther || !strings.HasPrefix(back, p.base+"/auth/callback?") {
		p.t.Fatalf("the issuer: %s: %s", got.Status, got.body)
	}
	return back
}

func TestLoginByOIDC(t *testing.T) {
	t.Parallel()
	_, p := atIssuer(t, "{client_id: console, client_secret_file: secret, scopes: [groups]}")
	if got := p.want(401, p.send("GET", "/auth/me", "")); !strings.Contains(got.body,
		`"methods":["link","token","oidc"]`) {
		t.Error(got.body)
	}
	to, _ := p.navigate(p.base+"/auth/oidc", "none")
	asked, err := url.Parse(to)
	if q := asked.Query(); err != nil || q.Get("scope") != "openid groups" || q.Get("client_id") != "console" ||
		q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) != 43 || len(q.Get("state")) < 20 ||
		len(q.Get("nonce")) < 20 || strings.Contains(to, "secret") {
		t.Errorf("%s, %v", to, err)
	}
	back := p.atTheIssuer("return=/sessions/s%3Fx=1")
	to, got := p.navigate(back, "cross-site")
	if got.StatusCode != http.StatusSeeOther || to != "/sessions/s?x=1" {
		t.Fatalf("%s to %q: %s", got.Status, to, got.body)
	}
	var me struct {
		Name, Tenant, Role, Method string
		Expires                    time.Time
	}
	found := p.want(200, p.send("GET", "/auth/me", ""))
	if err := json.Unmarshal([]byte(found.body), &me); err != nil || me.Name != "ann" || me.Tenant != "acme" ||
		me.Role != "participant" || me.Method != "oidc" ||
		time.Until(me.Expires) > devissuer.DefaultLifetime+time.Minute {
		t.Errorf("%s, %v", found.body, err)
	}
	p.want(200, p.send("POST", webInfo, "{}"))
	if _, got := p.navigate(back, "cross-site"); got.StatusCode != http.StatusForbidden { // replayed
		t.Errorf("a replayed answer: %s", got.Status)
	}
	out := p.want(200, p.send("POST", "/auth/logout", "{}"))
	var left struct{ Redirect string }
	if err := json.Unmarshal([]byte(out.body), &left); err != nil ||
		!strings.HasPrefix(left.Redirect, p.issuer.URL()+"/logout?client_id=console&post_logout_redirect_uri=") {
		t.Errorf("%s, %v", out.body, err)
	}
	if to, _ := p.navigate(left.Redirect, "cross-site"); to != p.base+"/" {
		t.Errorf("the issuer leads to %q", to)
	}
	p.want(401, p.send("GET", "/auth/me", ""))
}

// The login of an issuer ends with the issuer's section, and lasts as long as that says.
func TestOIDCLoginFollowsThePolicy(t *testing.T) {
	t.Parallel()
	_, p := atIssuer(t, "{client_id: console, lifetime: 8h}")
	p.navigate(p.atTheIssuer(""), "cross-site")
	var me struct{ Expires time.Time }
	got := p.want(200, p.send("GET", "/auth/me", ""))
	if err := json.Unmarshal([]byte(got.body), &me); err != nil || time.Until(me.Expires) < 7*time.Hour ||
		time.Until(me.Expires) > 8*time.Hour {
		t.Errorf("%s, %v", got.body, err)
	}
	token, err := p.issuer.Token(url.Values{"audience": {"console"}, "subject": {"ann"}, "groups": {"agents"}})
	if err != nil {
		t.Fatal(err)
	}
	p.want(401, p.send("POST", webInfo, "{}", "Authorization: Bearer "+token)) // an ID token is no access token
	p.write(t, "{client_id: another}")
	if err := p.policy.Reload(); err != nil {
		t.Fatal(err)
	}
	p.want(401, p.send("POST", webInfo, "{}"))
}

// An answer that does not belong to the browser's own attempt is refused.
func TestForgedOIDCAnswers(t *testing.T) {
	t.Parallel()
	_, p := atIssuer(t, "{client_id: console}")
	for name, change := range map[string]func(back string) string{
		"another browser": func(back string) string { p.restart(); return back },
		"another state": func(back string) string {
			u, _ := url.Parse(back)
			q := u.Query()
			q.Set("state", "GUESSED")
			return p.base + "/auth/callback?" + q.Encode()
		},
		"without state": func(string) string { return p.base + "/auth/callback?code=x" },
		"another code": func(back string) string {
			u, _ := url.Parse(back)
			q := u.Query()
			q.Set("code", "GUESSED")
			return p.base + "/auth/callback?" + q.Encode()
		},
		"the code of another attempt": func(back string) string {
			u, _ := url.Parse(back)
			code := u.Query().Get("code")
			other, _ := url.Parse(p.atTheIssuer(""))
			q := other.Query()
			q.Set("code", code) // PKCE and the nonce are of the second attempt
			return p.base + "/auth/callback?" + q.Encode()
		},
		"another issuer": func(back string) string { return strings.Replace(back, "iss=", "iss=x", 1) },
		"refused":        func(back string) string { return back + "&error=access_denied" },
	} {
		p.restart()
		where := change(p.atTheIssuer(""))
		if _, got := p.navigate(where, "cross-site"); got.StatusCode != http.StatusForbidden ||
			strings.Contains(got.body, "GUESSED") {
			t.Errorf("%s: %s: %s", name, got.Status, got.body)
		}
		if got := p.send("GET", "/auth/me", ""); got.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: logged in: %s", name, got.body)
		}
		p.client.CloseIdleConnections()
	}
	// Another page can neither begin a login, nor load the answer as an image or a frame.
	if _, got := p.navigate(p.base+"/auth/oidc", "cross-site"); got.StatusCode != http.StatusForbidden {
		t.Errorf("begun by another page: %s", got.Status)
	}
	p.cookie = nil
	p.want(403, p.send("GET", "/auth/callback?code=x&state=y", "", "Sec-Fetch-Site: cross-site",
		"Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"))
}

// After the login the browser goes to a page of this server only.
func TestOpenRedirects(t *testing.T) {
	t.Parallel()
	_, p := atIssuer(t, "{client_id: console}")
	for _, back := range []string{"https://evil.example", "//evil.example", "///evil.example", `/\evil.example`,
		`\\evil.example`, "/%2F/evil.example", "/%5Cevil.example", "javascript:alert(1)", "evil.example",
		"/\t/evil.example", "/\n/evil", "http:/evil", "/auth/logout", "%"} {
		_, got := p.navigate(p.base+"/auth/oidc?return="+url.QueryEscape(back), "same-origin")
		if got.StatusCode != http.StatusBadRequest {
			t.Errorf("%q: %s to %s", back, got.Status, got.Header.Get("Location"))
		}
	}
}

// An identity without a role is refused, and so is a client without an id.
func TestOIDCWithoutRole(t *testing.T) {
	t.Parallel()
	s, p := atIssuer(t, "{client_id: console}")
	to, _ := p.navigate(p.base+"/auth/oidc", "same-origin")
	back, _ := p.navigate(to+"&subject=eve&groups=others", "cross-site")
	if _, got := p.navigate(back, "cross-site"); got.StatusCode != http.StatusForbidden ||
		!strings.Contains(got.body, "no role") {
		t.Errorf("%s: %s", got.Status, got.body)
	}
	p.want(401, p.send("GET", "/auth/me", ""))
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	write(t, p.path, []byte("version: 1\nidentity: {oidc: [{issuer: 'https://x.example', audiences: [a], "+
		"login: {scopes: [x]}}]}"))
	if err := p.policy.Reload(); err == nil || !strings.Contains(err.Error(), "login.client_id") {
		t.Errorf("a client without an id: %v", err)
	}
}

// An address whose guesses are refused logs in by its issuer and by the issuer's tokens. Logins at the issuer that were
// begun and not finished are limited, and let a known login begin another one.
func TestLimitsOfOIDCLogins(t *testing.T) {
	t.Parallel()
	s, p := atIssuer(t, "{client_id: console, client_secret_file: secret, scopes: [groups]}")
	s.visitor(t).guess("/auth/token")
	token, err := p.issuer.Token(url.Values{"audience": {"api"}, "subject": {"ann"}, "groups": {"agents"}})
	if err != nil {
		t.Fatal(err)
	}
	v := s.visitor(t)
	v.want(200, v.send("POST", "/auth/token", tokenBody(token)))
	for range 30 { // finished logins do not count
		p.restart()
		if _, got := p.navigate(p.atTheIssuer(""), "cross-site"); got.StatusCode != http.StatusSeeOther {
			t.Fatalf("%s: %s", got.Status, got.body)
		}
	}
	s.visitor(t).guess("/auth/token")
	if _, got := p.navigate(p.base+"/auth/callback?state=x", "cross-site"); got.StatusCode != 429 {
		t.Errorf("a forged answer: %s", got.Status)
	}
	known := p.client.Jar
	p.restart()
	begin := func() int {
		_, got := p.navigate(p.base+"/auth/oidc", "same-origin")
		return got.StatusCode
	}
	refused := 0
	for range 60 {
		if begin() == 429 {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no login that was begun is refused")
	}
	p.client.Jar = known
	if code := begin(); code != http.StatusSeeOther {
		t.Errorf("a known login begins another one: %d", code)
	}
}
