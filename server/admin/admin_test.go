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

func TestCheck(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		address string
		wide    bool
		problem string
	}{
		{"127.0.0.1:0", false, ""},
		{"localhost:9464", false, ""},
		{"[::1]:0", false, ""},
		{"unix:/run/x", false, ""},
		{"0.0.0.0:9464", true, ""},
		{"0.0.0.0:9464", false, "--admin-wide"},
		{":9464", false, "--admin-wide"},
		{"example.com:1", false, "--admin-wide"},
		{"unix:", false, "no path"},
		{"9464", false, "neither unix:PATH nor HOST:PORT"},
	} {
		err := Check(tc.address, tc.wide)
		if (err == nil) != (tc.problem == "") || err != nil && !strings.Contains(err.Error(), tc.problem) {
			t.Errorf("Check(%q, %v) = %v", tc.address, tc.wide, err)
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
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
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
	get := serve(t, Config{Listen: "127.0.0.1:0", Ready: func() error { return unready }, Metrics: http.HandlerFunc(
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
		{"/metrics", "attacker.example", "", 403, "must be called"},
		{"/metrics", "localhost", "http://attacker.example", 403, "web pages"},
	} {
		header := http.Header{}
		if tc.origin != "" {
			header.Set("Origin", tc.origin)
		}
		if code, text := get(tc.path, tc.host, header); code != tc.code || !strings.Contains(text, tc.text) {
			t.Errorf("%s of %s: %d %q", tc.path, tc.host, code, text)
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
	if _, err := New(t.Context(), Config{Listen: l.Addr().String()}); err == nil {
		t.Error("two listen on one port")
	}
}
