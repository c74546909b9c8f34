package admin

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// token is the admin token of these tests.
const token = "sixteen-characters-and-more"

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		address, token string
		wide           bool
		problem        string
	}{
		{"127.0.0.1:0", token, false, ""},
		{"localhost:9464", token, false, ""},
		{"[::1]:0", token, false, ""},
		{"unix:/run/x", "", false, ""},
		{"0.0.0.0:9464", token, true, ""},
		{"0.0.0.0:9464", token, false, "--admin-wide"},
		{":9464", token, false, "--admin-wide"},
		{"example.com:1", token, false, "--admin-wide"},
		{"unix:", "", false, "no path"},
		{"9464", token, false, "neither unix:PATH nor HOST:PORT"},
		{"127.0.0.1:0", "", false, "set admin_token"},
		{"0.0.0.0:9464", "", true, "set admin_token"},
		{"127.0.0.1:0", "short", false, "fewer than 16"},
	} {
		err := Check(tc.address, tc.token, tc.wide)
		if (err == nil) != (tc.problem == "") || err != nil && !strings.Contains(err.Error(), tc.problem) {
			t.Errorf("Check(%q, %q, %v) = %v", tc.address, tc.token, tc.wide, err)
		}
	}
}

// serve serves until the test ends, and returns what asks it.
func serve(t *testing.T, c Config) func(path, host string, header http.Header) (int, string) {
	t.Helper()
	c.Logger = slog.New(slog.DiscardHandler)
	s, err := New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	transport := &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, s.Addr().Network(), s.Addr().String())
		}}
	return func(path, host string, header http.Header) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+host+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = header
		resp, err := (&http.Client{Transport: transport}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	unready := errors.New("busy with something")
	get := serve(t,
		Config{Listen: "127.0.0.1:0", Token: token, Ready: func() error { return unready }, Metrics: http.HandlerFunc(
			func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "figures 1\n") })})
	for _, tc := range []struct {
		path, host, origin string
		code               int
		text               string
	}{
		{"/healthz", "localhost", "", 200, "ok"},
		{"/readyz", "127.0.0.1:9464", "", 503, "busy with something"},
		{"/metrics", "[::1]:9464", "", 200, "figures 1"},
		{"/", "localhost", "", 200, "channelz"},
		{"/debug/pprof/goroutine?debug=1", "localhost", "", 200, "goroutine profile"},
		{"/debug/pprof/cmdline", "localhost", "", 404, ""},
		{"/nothing", "localhost", "", 404, ""},
		{"/metrics", "attacker.example", "", 403, "host name must be"},
		{"/metrics", "localhost", "http://attacker.example", 403, "web pages"},
	} {
		header := http.Header{"Authorization": {"Bearer " + token}}
		if tc.origin != "" {
			header.Set("Origin", tc.origin)
		}
		if code, text := get(tc.path, tc.host, header); code != tc.code || !strings.Contains(text, tc.text) {
			t.Errorf("%s of %s: %d %q", tc.path, tc.host, code, text)
		}
	}
}

// Over TCP only health and readiness are open. A browser's request for another origin is
// refused also without an Origin header and with the token.
func TestTokenAndWebPages(t *testing.T) {
	t.Parallel()
	get := serve(t, Config{Listen: "127.0.0.1:0", Token: token, Metrics: http.NotFoundHandler()})
	with := func(name, value string) http.Header {
		return http.Header{"Authorization": {"Bearer " + token}, name: {value}}
	}
	for _, tc := range []struct {
		name, path string
		header     http.Header
		code       int
	}{
		{"open", "/healthz", http.Header{}, 200},
		{"open", "/readyz", http.Header{}, 200},
		{"no token", "/", http.Header{}, 401},
		{"no token", "/metrics", http.Header{}, 401},
		{"no token", "/debug/pprof/goroutine", http.Header{}, 401},
		{"no token", "/debug/pprof/profile", http.Header{}, 401},
		{"no token, another spelling", "/healthz/../metrics", http.Header{}, 401},
		{"no token, another spelling", "//healthz", http.Header{}, 401},
		{"no token, gRPC", "/grpc.channelz.v1.Channelz/GetServers", http.Header{"Content-Type": {"application/grpc"}},
			401},
		{"wrong token", "/", http.Header{"Authorization": {"Bearer " + token + "x"}}, 401},
		{"empty token", "/", http.Header{"Authorization": {"Bearer "}}, 401},
		{"other scheme", "/", http.Header{"Authorization": {"Basic " + token}}, 401},
		{"token", "/", with("X", ""), 200},
		{"cross-site image", "/", with("Sec-Fetch-Site", "cross-site"), 403},
		{"another port of this host", "/", with("Sec-Fetch-Site", "same-site"), 403},
		{"cross-site image", "/readyz", http.Header{"Sec-Fetch-Site": {"cross-site"}}, 403},
		{"typed by the user", "/", with("Sec-Fetch-Site", "none"), 200},
	} {
		if code, text := get(tc.path, "localhost", tc.header); code != tc.code {
			t.Errorf("%s: %s: %d %q, want %d", tc.name, tc.path, code, text, tc.code)
		}
	}
}

// On a unix socket any name will do, and none but the own user gets in.
func TestUnixSocket(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "ad") // short: it is in a socket's path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	get := serve(t, Config{Listen: "unix:" + path})
	if code, _ := get("/readyz", "anything", http.Header{}); code != http.StatusOK {
		t.Errorf("it says %d", code)
	}
	if code, _ := get("/metrics", "anything", http.Header{}); code != http.StatusNotFound {
		t.Errorf("without figures it says %d", code)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v", info, err)
	}
}

func TestAddressInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if _, err := New(t.Context(), Config{Listen: l.Addr().String(), Token: token}); err == nil {
		t.Error("two listen on one port")
	}
}
