package server_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/identity"
	"github.com/copilot-grpc/copilot-grpc/server/login"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
	"github.com/copilot-grpc/copilot-grpc/server/rpc"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

// visitor sends requests as a browser does.
type visitor struct {
	t      *testing.T
	base   string
	client *http.Client
	cookie *http.Cookie
}

// response is a response with its body.
type response struct {
	*http.Response
	body string
}

// send sends a request with the cookie; headers are "Name: value", and replace the default ones.
func (v *visitor) send(method, path, body string, headers ...string) response {
	v.t.Helper()
	req, err := http.NewRequestWithContext(v.t.Context(), method, v.base+path, strings.NewReader(body))
	if err != nil {
		v.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if v.cookie != nil {
		req.AddCookie(v.cookie)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
		if name == "Host" {
			req.Host = value
		}
	}
	resp, err := v.client.Do(req)
	if err != nil {
		v.t.Fatal(err)
	}
	got := response{resp, textOf(v.t, resp)}
	for _, c := range resp.Cookies() {
		v.cookie = c
		if c.MaxAge < 0 {
			v.cookie = nil
		}
	}
	return got
}

// want fails unless the status is the expected one.
func (v *visitor) want(status int, got response) response {
	v.t.Helper()
	if got.StatusCode != status {
		v.t.Errorf("%s %s: status %d, want %d: %s", got.Request.Method, got.Request.URL.Path, got.StatusCode, status,
			got.body)
	}
	return got
}

// site is a server with a listener for browsers.
type testSite struct {
	*servertest.Running
	store *login.Store
}

func startSite(t *testing.T, c server.Config, services ...server.Service) *testSite {
	t.Helper()
	store, err := login.Open(login.Config{Path: filepath.Join(t.TempDir(), "logins.json")})
	if err != nil {
		t.Fatal(err)
	}
	c.Web = &server.Web{Listen: "127.0.0.1:0", Logins: store}
	return &testSite{servertest.Start(t, c, append(services, info{})...), store}
}

func (s *testSite) visitor(t *testing.T) *visitor {
	return &visitor{t: t, base: "http://" + s.Server.WebAddr().String(), client: browser(t, nil)}
}

// link returns the token of a link for the owner of the host.
func (s *testSite) link(role caller.Role) string {
	url, _ := s.store.Link(identity.Login{Identity: identity.Identity{Source: identity.Socket},
		Tenant: caller.HostName, Role: role}, time.Minute)
	_, token, _ := strings.Cut(url, "#")
	return token
}

func tokenBody(token string) string { return fmt.Sprintf(`{"token":%q}`, token) }

// loggedIn returns a visitor who has used a link.
func (s *testSite) loggedIn(t *testing.T, role caller.Role) *visitor {
	t.Helper()
	v := s.visitor(t)
	v.want(200, v.send("POST", "/auth/link", tokenBody(s.link(role))))
	if v.cookie == nil {
		t.Fatal("no cookie")
	}
	return v
}

func TestLoginByLink(t *testing.T) {
	t.Parallel()
	s := startSite(t, server.Config{Token: webToken})
	v := s.visitor(t)
	if got := v.want(401, v.send("GET", "/auth/me", "")); !strings.Contains(got.body, `"methods":["link","token"]`) {
		t.Error(got.body)
	}
	v.want(401, v.send("POST", webInfo, "{}"))
	token := s.link(caller.Admin)
	for _, path := range []string{"/auth/link", "/auth/link?token=" + token, "/login", "/"} {
		v.send("GET", path, "") // a preview of the link
	}
	got := v.want(200, v.send("POST", "/auth/link", tokenBody(token)))
	var me struct {
		Name, Tenant, Role, Method string
		Expires                    time.Time
	}
	if err := json.Unmarshal([]byte(got.body), &me); err != nil || me.Tenant != "host" || me.Role != "owner" ||
		me.Method != "link" || time.Until(me.Expires) < 6*24*time.Hour {
		t.Errorf("%s, %v", got.body, err)
	}
	if again := v.want(200, v.send("GET", "/auth/me", "")); again.body != got.body {
		t.Errorf("%s after %s", again.body, got.body)
	}
	c := v.cookie
	_, port, _ := strings.Cut(s.Server.WebAddr().String(), ":")
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Secure || c.Path != "/" || c.Domain != "" ||
		c.Name != "copilot-grpc-"+port {
		t.Errorf("%+v", c)
	}
	v.want(200, v.send("POST", webInfo, "{}"))
	other := s.visitor(t)
	other.want(401, other.send("POST", "/auth/link", tokenBody(token)))
}

func TestLoginByServerToken(t *testing.T) {
	t.Parallel()
	s := startSite(t, server.Config{Token: webToken})
	v := s.visitor(t)
	v.want(401, v.send("POST", "/auth/token", tokenBody("a-token-of-another-server")))
	v.want(401, v.send("POST", "/auth/token", `{}`))
	if got := v.want(200, v.send("POST", "/auth/token", tokenBody(webToken))); !strings.Contains(got.body,
		`"method":"token"`) {
		t.Error(got.body)
	}
	v.want(200, v.send("POST", webInfo, "{}"))

	again := servertest.Start(t, server.Config{Token: "another-token-of-16", Web: &server.Web{Listen: "127.0.0.1:0",
		Logins: s.store}}, info{})
	v.base = "http://" + again.Server.WebAddr().String()
	v.cookie.Name = "copilot-grpc-" + v.base[strings.LastIndex(v.base, ":")+1:]
	v.want(401, v.send("POST", webInfo, "{}")) // the token has changed
}

// A login lasts until it ends: logout, another login of the same browser, a wrong cookie.
func TestLogout(t *testing.T) {
	t.Parallel()
	s := startSite(t, server.Config{Token: webToken})
	v := s.loggedIn(t, caller.Admin)
	first := v.cookie
	v.want(200, v.send("POST", "/auth/link", tokenBody(s.link(caller.Admin))))
	second := v.cookie
	if first.Value == second.Value {
		t.Error("a login has the cookie of an earlier one")
	}
	v.cookie = first
	v.want(401, v.send("POST", webInfo, "{}"))
	v.cookie = second
	v.want(200, v.send("POST", webInfo, "{}"))
	if got := v.want(200, v.send("POST", "/auth/logout", "{}")); v.cookie != nil {
		t.Errorf("the cookie remains: %v", got.Header)
	}
	v.cookie = second
	v.want(401, v.send("POST", webInfo, "{}"))
	v.want(200, v.send("POST", "/auth/logout", "{}"))
}

// A cookie that a server did not set is no login: the browser gets a new one.
func TestFixedCookie(t *testing.T) {
	t.Parallel()
	s := startSite(t, server.Config{Token: webToken})
	v := s.loggedIn(t, caller.Admin)
	good := v.cookie
	for name, value := range map[string]string{"tampered": "A" + good.Value[1:25] + "1", "empty": "",
		"long": strings.Repeat("A", 4000), "twice": good.Value + "; " + good.Name + "=x"} {
		v.cookie = nil
		if got := v.send("POST", webInfo, "{}", "Cookie: "+good.Name+"="+value); got.StatusCode != 401 {
			t.Errorf("%s: status %d", name, got.StatusCode)
		}
	}
	v.cookie = nil
	v.want(401, v.send("POST", webInfo, "{}", "Cookie: copilot-grpc-1="+good.Value))
	v.cookie = &http.Cookie{Name: good.Name, Value: "chosen"}
	v.want(200, v.send("POST", "/auth/link", tokenBody(s.link(caller.Admin))))
	if v.cookie.Value == "chosen" || v.cookie.Value == good.Value {
		t.Error("the server took the browser's cookie")
	}
	other := startSite(t, server.Config{Token: webToken}).visitor(t)
	other.cookie = &http.Cookie{Name: "copilot-grpc-" + other.base[strings.LastIndex(other.base, ":")+1:],
		Value: v.cookie.Value}
	other.want(401, other.send("POST", webInfo, "{}"))
}

// Authorization decides, also if it is wrong and the cookie is not.
func TestAuthorizationWins(t *testing.T) {
	t.Parallel()
	s := startSite(t, server.Config{Token: webToken}, rpc.NewSession(nil, nil, nil, nil, nil))
	v := s.loggedIn(t, caller.Observer)
	v.want(401, v.send("POST", webInfo, "{}", "Authorization: Bearer wrong-token-of-16"))
	if got := v.send("GET", "/auth/me", "", "Authorization: Bearer "+webToken); !strings.Contains(got.body,
		`"role":"owner"`) {
		t.Error(got.body)
	}
	if got := v.send("GET", "/auth/me", ""); !strings.Contains(got.body, `"role":"observer"`) {
		t.Error(got.body)
	}
	create := "/copilot.bridge.v1.SessionService/CreateSession"
	if got := v.want(403, v.send("POST", create, "{}")); !strings.Contains(got.body, "FORBIDDEN") {
		t.Error(got.body)
	}
}

// Pages of other servers can neither log in and out nor call with the cookie.
func TestCrossSite(t *testing.T) {
	t.Parallel()
	store, err := login.Open(login.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := &testSite{servertest.Start(t, server.Config{Token: webToken, Web: &server.Web{Listen: "127.0.0.1:0",
		Logins: store, Origins: []string{"https://app.example"}}}, info{}), store}
	own := s.loggedIn(t, caller.Admin)
	cookie := own.cookie
	for name, headers := range map[string][]string{
		"another page":    {"Origin: https://evil.example", "Sec-Fetch-Site: cross-site"},
		"without origin":  {"Sec-Fetch-Site: cross-site"},
		"another port":    {"Origin: http://127.0.0.1:1", "Sec-Fetch-Site: same-site"},
		"old browser":     {"Origin: null"},
		"permitted page":  {"Origin: https://app.example", "Sec-Fetch-Site: cross-site"},
		"rebound name":    {"Host: evil.example", "Origin: http://evil.example", "Sec-Fetch-Site: same-origin"},
		"same-site image": {"Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors"},
	} {
		for path, body := range map[string]string{"/auth/link": tokenBody(s.link(caller.Admin)),
			"/auth/token": tokenBody(webToken), "/auth/logout": "{}", webInfo: "{}"} {
			own.cookie = cookie
			if got := own.send("POST", path, body, headers...); got.StatusCode != 403 && got.StatusCode != 401 ||
				own.cookie != cookie || got.Header.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s, %s: status %d, %v", name, path, got.StatusCode, got.Header)
			}
		}
		own.cookie = cookie
		if got := own.send("GET", "/auth/me", "", headers...); got.StatusCode != 403 {
			t.Errorf("%s: status %d: %s", name, got.StatusCode, got.body)
		}
	}
	own.cookie = cookie
	own.want(200, own.send("GET", "/auth/me", "", "Origin: "+own.base, "Sec-Fetch-Site: same-origin"))
}

// A form of another page, if it came without Origin, has another type than JSON.
func TestForms(t *testing.T) {
	t.Parallel()
	s := startSite(t, server.Config{Token: webToken})
	v := s.loggedIn(t, caller.Admin)
	for _, kind := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x",
		"text/plain; application/json", ""} {
		for _, path := range []string{"/auth/link", "/auth/token", "/auth/logout"} {
			v.want(415, v.send("POST", path, tokenBody(webToken), "Content-Type: "+kind))
		}
		if got := v.send("POST", webInfo, "{}", "Content-Type: "+kind); got.StatusCode != 415 {
			t.Errorf("%q: status %d", kind, got.StatusCode)
		}
	}
	v.want(200, v.send("GET", "/auth/me", ""))
}

func TestInvalidLogins(t *testing.T) {
	t.Parallel()
	s := startSite(t, server.Config{Token: webToken})
	v := s.visitor(t)
	for body, status := range map[string]int{"": 400, "{": 400, "[]": 400, `{"token":1}`: 400, `{"tokens":"x"}`: 400,
		`{"token":"x"} {}`: 400, `{"token":"` + strings.Repeat("x", 40<<10) + `"}`: 413, `{"token":"x"}`: 401} {
		got := v.want(status, v.send("POST", "/auth/token", body))
		if len(got.body) > 300 {
			t.Errorf("%.20q: %s", body, got.body)
		}
	}
	for path, status := range map[string]int{"/auth/link": 405, "/auth/": 404, "/auth/other": 404, "/auth/oidc": 404} {
		v.want(status, v.send("GET", path, ""))
	}
	v.want(405, v.send("POST", "/auth/me", "{}"))
}

// guess tries wrong secrets until an attempt is refused for their number.
func (v *visitor) guess(path string) {
	v.t.Helper()
	for range 60 {
		got := v.send("POST", path, tokenBody("guess"))
		switch {
		case got.StatusCode == 429 && got.Header.Get("Retry-After") == "1":
			return
		case got.StatusCode != 401:
			v.t.Fatalf("a guess: %d %s", got.StatusCode, got.body)
		}
	}
	v.t.Error("no attempt was refused")
}

// Attempts that fail are limited for each address. What is correct is let in nevertheless: every way to log in, the
// logins of earlier, and calls with a token.
func TestTooManyLogins(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/auth/token", "/auth/link"} {
		s := startSite(t, server.Config{Token: webToken})
		known, link := s.loggedIn(t, caller.Admin), s.link(caller.Admin)
		s.visitor(t).guess(path)
		for range 30 {
			v := s.visitor(t)
			v.want(200, v.send("POST", "/auth/token", tokenBody(webToken)))
		}
		v := s.visitor(t)
		v.guess(path)
		v.want(200, v.send("POST", "/auth/link", tokenBody(link)))
		known.want(200, known.send("GET", "/auth/me", ""))
		known.want(200, known.send("POST", webInfo, "{}"))
		known.want(200, known.send("POST", "/auth/logout", "{}"))
		anonymous := s.visitor(t)
		anonymous.want(401, anonymous.send("POST", webInfo, "{}", "Authorization: Bearer guess"))
		anonymous.want(200, anonymous.send("POST", webInfo, "{}", "Authorization: Bearer "+webToken))
	}
}

// Successes do not count as attempts.
func TestManyLogins(t *testing.T) {
	t.Parallel()
	s := startSite(t, server.Config{Token: webToken})
	for range 60 {
		v := s.visitor(t)
		v.want(200, v.send("POST", "/auth/token", tokenBody(webToken)))
		v.want(200, v.send("POST", "/auth/link", tokenBody(s.link(caller.Observer))))
	}
	v := s.visitor(t)
	v.want(401, v.send("POST", "/auth/token", tokenBody("guess")))
}

// follow opens a stream with the cookie and returns it after its first line.
func (v *visitor) follow() *bufio.Reader {
	v.t.Helper()
	req, err := http.NewRequestWithContext(v.t.Context(), http.MethodPost, v.base+webSubscribe,
		strings.NewReader(`{"sessions":[{"sessionId":"s"}]}`))
	if err != nil {
		v.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.AddCookie(v.cookie)
	resp, err := v.client.Do(req)
	if err != nil {
		v.t.Fatal(err)
	}
	v.t.Cleanup(func() { _ = resp.Body.Close() })
	lines := bufio.NewReader(resp.Body)
	if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, `"s"`) {
		v.t.Fatalf("%q, %v", line, err)
	}
	return lines
}

// Streams end with the login.
func TestLogoutEndsStreams(t *testing.T) {
	t.Parallel()
	s := startSite(t, server.Config{Token: webToken}, rpc.NewEvent(&following{}, nil))
	v := s.loggedIn(t, caller.Admin)
	lines := v.follow()
	v.want(200, v.send("POST", "/auth/logout", "{}"))
	if rest, err := io.ReadAll(lines); err != nil || !strings.Contains(string(rest), `"code":"unauthenticated"`) {
		t.Errorf("after the logout: %q, %v", rest, err)
	}
	l, short := identity.Login{Identity: identity.Identity{Source: identity.Socket}, Tenant: caller.HostName,
		Role: caller.Admin, Expires: time.Now().Add(time.Second)}, *v
	value, _, err := s.store.Add(l)
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := strings.Cut(s.Server.WebAddr().String(), ":")
	short.cookie = &http.Cookie{Name: "copilot-grpc-" + port, Value: value}
	if rest, err := io.ReadAll(short.follow()); err != nil ||
		!strings.Contains(string(rest), "expired") {
		t.Errorf("after the expiry: %q, %v", rest, err)
	}
}

// digestOf returns the digest of a token for a tokens file.
func digestOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// following is a backend of events whose streams last.
type following struct{ rpc.EventBackend }

func (following) Subscribe(ctx context.Context, _ *bridgev1.SubscribeRequest, emit frame.Sink) error {
	if err := emit(frame.Frame{Message: &bridgev1.SubscribeResponse{SessionId: "s"}}); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// With a policy, a login has the rights of its token, and ends with it.
func TestLoginFollowsThePolicy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	boss := "\nboss " + digestOf("the-boss's-token") + "\n"
	write(t, file("tokens"), []byte("watcher "+digestOf("the-watcher's-token")+boss))
	write(t, file("policy"), []byte(`version: 1
identity: {tokens: tokens}
tenants:
  acme:
    members: [{token: watcher, role: observer}, {token: boss, role: owner}]
  build:
    members: [{token: boss, role: observer}]
`))
	p, err := policy.Open(file("policy"), slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	s := startSite(t, server.Config{Policy: p}, rpc.NewEvent(&following{}, nil))
	watcher, chief := s.visitor(t), s.visitor(t)
	got := watcher.want(200, watcher.send("POST", "/auth/token", tokenBody("the-watcher's-token")))
	if !strings.Contains(got.body, `"name":"watcher","tenant":"acme","role":"observer"`) {
		t.Error(got.body)
	}
	chief.want(403, chief.send("POST", "/auth/token", tokenBody("the-boss's-token")))
	chief.want(403, chief.send("POST", "/auth/token", `{"token":"the-boss's-token","tenant":"none"}`))
	if got := chief.want(200, chief.send("POST", "/auth/token",
		`{"token":"the-boss's-token","tenant":"acme"}`)); !strings.Contains(got.body, `"role":"owner"`) {
		t.Error(got.body)
	}
	chief.want(200, chief.send("POST", webInfo, "{}"))
	chief.want(403, chief.send("POST", webInfo, "{}", "Copilot-Tenant: build"))
	watcher.want(200, watcher.send("POST", webInfo, "{}"))
	lines := watcher.follow()
	write(t, file("tokens"), []byte("watcher "+digestOf("another-token")+boss))
	if err := p.Reload(); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(lines); err != nil || !strings.Contains(string(rest), `"code":"unauthenticated"`) {
		t.Errorf("the stream: %q, %v", rest, err)
	}
	watcher.client.CloseIdleConnections() // the server closes them
	watcher.want(401, watcher.send("POST", webInfo, "{}"))
	chief.want(200, chief.send("POST", webInfo, "{}"))
}

// Guesses on one connection and on many lock out nobody, at the listener for gRPC and at the one for browsers.
func TestGuessesLockOutNobody(t *testing.T) {
	t.Parallel()
	store, err := login.Open(login.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s := startTenanted(t, "", server.Config{Web: &server.Web{Listen: "127.0.0.1:0", Logins: store}})
	conn := s.Dial(t, 0)
	call := func(token string) error {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+token)
		return conn.Invoke(ctx, serverInfo, &bridgev1.GetServerInfoRequest{}, &bridgev1.GetServerInfoResponse{})
	}
	site := &testSite{s.Running, store}
	for range 300 {
		if err := call("guess"); grpcstatus.Code(err) != codes.Unauthenticated {
			t.Fatalf("a guess: %v", err)
		}
	}
	site.visitor(t).guess("/auth/token")
	if err := call(tokenOf("acme")); err != nil {
		t.Errorf("the correct token: %v", err)
	}
	v := site.visitor(t)
	v.want(200, v.send("POST", "/auth/token", tokenBody(tokenOf("acme"))))
	v.want(200, v.send("POST", webInfo, "{}"))
	v.want(401, v.send("POST", webInfo, "{}", "Authorization: Bearer guess"))
	v.want(200, v.send("POST", webInfo, "{}", "Authorization: Bearer "+tokenOf("rival")))
}
