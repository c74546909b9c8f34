package web_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/server/web"
)

func TestPages(t *testing.T) {
	t.Parallel()
	s := start(t, &backend{get: echo}, func(c *web.Config) {
		c.Pages = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, "page "+r.URL.Path)
		})
	})
	linked := []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}
	own := []string{"Origin: " + s.URL, "Sec-Fetch-Site: same-origin"}
	for name, tc := range map[string]struct {
		method, path string
		headers      []string
		status       int
		body         string
	}{
		"root":           {"GET", "/", nil, 200, "page /"},
		"route":          {"GET", "/sessions/a.b", nil, 200, "page /sessions/a.b"},
		"head":           {"HEAD", "/", nil, 200, ""},
		"linked":         {"GET", "/", linked, 200, "page /"},
		"script":         {"GET", "/a.js", own, 200, "page /a.js"},
		"in a frame":     {"GET", "/", append(linked[:2:2], "Sec-Fetch-Dest: iframe"), 403, "*"},
		"as an image":    {"GET", "/a.png", []string{"Sec-Fetch-Site: cross-site"}, 403, "*"},
		"rebound name":   {"GET", "/", []string{"Host: evil.example"}, 403, "*"},
		"method":         {"POST", getSession, []string{asJSON}, 200, "*"},
		"unknown method": {"POST", "/copilot.bridge.v1.SessionService/X", []string{asJSON}, 404, "*"},
		"unknown by get": {"GET", "/copilot.bridge.v1.SessionService/X", nil, 404, "*"},
		"post":           {"POST", "/", nil, 404, "*"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			body := ""
			if tc.method == http.MethodPost {
				body = "{}"
			}
			got := do(t, s, tc.method, tc.path, body, tc.headers...)
			if got.status != tc.status || tc.body != "*" && got.body != tc.body {
				t.Errorf("status %d, want %d: %q", got.status, tc.status, got.body)
			}
		})
	}
}
