package server_test

import (
	"bytes"
	"context"
	"encoding/pem"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/login"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

// A client certificate needs no login. A cookie counts before it, and with TLS it is for this host and TLS only.
func TestLoginsWithTLS(t *testing.T) {
	t.Parallel()
	a, dir := newAuthority(t), t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	cert, key := a.issue(1, "")
	write(t, file("cert"), cert)
	write(t, file("key"), key)
	write(t, file("ca"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
	write(t, file("tokens"), []byte("watcher "+digestOf("the-watcher's-token")+"\n"))
	write(t, file("policy"), []byte(`version: 1
identity: {certificates: true, tokens: tokens}
tenants:
  acme: {members: [{spiffe: 'spiffe://corp/boss', role: owner}, {token: watcher, role: observer}]}
`))
	p, err := policy.Open(file("policy"), slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	store, err := login.Open(login.Config{})
	if err != nil {
		t.Fatal(err)
	}
	r := servertest.Start(t, server.Config{Policy: p, Web: &server.Web{Listen: "127.0.0.1:0", Logins: store,
		URL: "https://agents.example/"}, TLS: &server.TLS{CertFile: file("cert"), KeyFile: file("key"),
		ClientCAFile: file("ca")}}, linking{store})
	base := "https://" + r.Server.WebAddr().String()
	port := base[strings.LastIndex(base, ":")+1:]
	boss := &visitor{t: t, base: base, client: browser(t, a.client("spiffe://corp/boss"))}
	if got := boss.want(200, boss.send("GET", "/auth/me", "")); !strings.Contains(got.body,
		`"name":"spiffe://corp/boss","tenant":"acme","role":"owner"`) ||
		!strings.Contains(got.body, `"method":"certificate"`) {
		t.Error(got.body)
	}
	if got := boss.want(400, boss.send("POST", createLink, "{}")); !strings.Contains(got.body, "FEATURE_DISABLED") {
		t.Error(got.body)
	}
	boss.want(200, boss.send("POST", "/auth/token", tokenBody("the-watcher's-token")))
	c := boss.cookie
	if c.Name != "__Host-copilot-grpc-"+port || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode ||
		c.Path != "/" || c.Domain != "" {
		t.Errorf("%+v", c)
	}
	if got := boss.send("GET", "/auth/me", ""); !strings.Contains(got.body, `"role":"observer"`) {
		t.Errorf("the certificate counts before the cookie: %s", got.body)
	}
	boss.cookie = &http.Cookie{Name: "copilot-grpc-" + port, Value: c.Value} // which a page without TLS could set
	if got := boss.send("GET", "/auth/me", ""); !strings.Contains(got.body, `"role":"owner"`) {
		t.Errorf("a cookie without the prefix counts: %s", got.body)
	}
	boss.cookie = c
	boss.want(200, boss.send("POST", "/auth/logout", "{}"))
	other := &visitor{t: t, base: base, client: browser(t, a.client("-"))}
	other.want(401, other.send("GET", "/auth/me", ""))
	if url := store.URL(); url != "https://agents.example" {
		t.Errorf("links begin with %q", url)
	}
}

// entries is an audit.Sink.
type entries struct {
	mu   sync.Mutex
	list []string
}

func (e *entries) Record(ctx context.Context, one audit.Entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.list = append(e.list, strings.Join([]string{one.Action, one.Outcome, one.Kind, one.Reason,
		caller.From(ctx).Name}, " "))
}

// Logins are in the audit log. Neither it nor the log has a token or a cookie.
func TestLoginsAreRecorded(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	store, err := login.Open(login.Config{})
	if err != nil {
		t.Fatal(err)
	}
	sink := &entries{}
	s := &testSite{servertest.Start(t, server.Config{Token: webToken, Audit: sink, LogRequests: true,
		Logger: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Web:    &server.Web{Listen: "127.0.0.1:0", Logins: store}}, linking{store}), store}
	v, token := s.visitor(t), s.link(caller.Admin)
	v.want(401, v.send("POST", "/auth/link", tokenBody("a-wrong-token-of-16")))
	v.want(200, v.send("POST", "/auth/link", tokenBody(token)))
	secrets := []string{token, v.cookie.Value, webToken, "a-wrong-token-of-16"}
	made := v.want(200, v.send("POST", createLink, "{}"))
	_, handed, _ := strings.Cut(strings.Split(made.body, `"`)[3], "#")
	secrets = append(secrets, handed)
	v.want(200, v.send("POST", "/auth/token", tokenBody(webToken)))
	secrets = append(secrets, v.cookie.Value)
	v.want(200, v.send("POST", "/auth/logout", "{}"))
	v.want(401, v.send("POST", webInfo, "{}"))
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	all := strings.Join(sink.list, "\n")
	for _, want := range []string{"login refused link UNAUTHENTICATED ", "login done link  socket",
		"login done token  server_token", "logout done token  server_token"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not in\n%s", want, all)
		}
	}
	for _, secret := range secrets {
		if len(secret) < 16 || strings.Contains(log.String()+all, secret) {
			t.Errorf("the log has %q", secret)
		}
	}
}
