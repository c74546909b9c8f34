package web_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server/web"
)

func TestOrigins(t *testing.T) {
	t.Parallel()
	s := start(t, &backend{get: echo}, func(c *web.Config) { c.Origins = []string{"https://app.example"} })
	anyHost := start(t, &backend{get: echo}, func(c *web.Config) { c.AnyHost = true })
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		headers []string
		status  int
		allowed string
	}{
		"no page":  {nil, 200, ""},
		"own page": {[]string{"Origin: " + s.URL, "Sec-Fetch-Site: same-origin"}, 200, ""},
		"by another name": {[]string{"Host: localhost:" + u.Port(), "Origin: http://localhost:" + u.Port()}, 200,
			""},
		"allowed page":         {[]string{"Origin: https://app.example"}, 200, "https://app.example"},
		"another page":         {[]string{"Origin: https://evil.example"}, 403, ""},
		"page of another port": {[]string{"Origin: http://127.0.0.1:1"}, 403, ""},
		"page without origin":  {[]string{"Origin: null"}, 403, ""},
		"by another scheme":    {[]string{"Origin: https://" + u.Host}, 403, ""},
		"image":                {[]string{"Sec-Fetch-Site: cross-site"}, 403, ""},
		"image of a neighbour": {[]string{"Sec-Fetch-Site: same-site"}, 403, ""},
		"rebound name":         {[]string{"Host: evil.example"}, 403, ""},
		"rebound page":         {[]string{"Host: evil.example", "Origin: http://evil.example"}, 403, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := post(t, s, getSession, "{}", tc.headers...)
			if got.status != tc.status || got.header.Get("Access-Control-Allow-Origin") != tc.allowed {
				t.Errorf("status %d, want %d: %v %s", got.status, tc.status, got.header, got.body)
			}
			if tc.status == http.StatusForbidden && !strings.Contains(got.body, `"reason":"FORBIDDEN"`) {
				t.Errorf("no reason: %s", got.body)
			}
			if got.header.Get("Access-Control-Allow-Credentials") != "" {
				t.Error("pages of other servers may send cookies")
			}
		})
	}
	if got := post(t, anyHost, getSession, "{}", "Host: agents.example"); got.status != http.StatusOK {
		t.Errorf("with any host: %+v", got)
	}
}

func TestPreflight(t *testing.T) {
	t.Parallel()
	s := start(t, &backend{}, func(c *web.Config) { c.Origins = []string{"https://app.example"} })
	got := do(t, s, http.MethodOptions, getSession, "", "Origin: https://app.example",
		"Access-Control-Request-Method: POST", "Access-Control-Request-Headers: authorization,content-type")
	allowed := got.header.Get("Access-Control-Allow-Headers")
	if got.status != http.StatusNoContent || !strings.Contains(allowed, "Authorization") ||
		!strings.Contains(allowed, "Content-Type") ||
		got.header.Get("Access-Control-Allow-Origin") != "https://app.example" {
		t.Errorf("%+v", got)
	}
	if got := do(t, s, http.MethodOptions, getSession, "", "Origin: https://evil.example",
		"Access-Control-Request-Method: POST"); got.status != http.StatusForbidden {
		t.Errorf("another page: %+v", got)
	}
}

func TestInvalidOrigins(t *testing.T) {
	t.Parallel()
	for _, origin := range []string{"", "*", "app.example", "https://", "https://app.example/", "ftp://app.example",
		"https://user@app.example", "https://app.example/x"} {
		if _, err := web.New(web.Config{Register: (&backend{}).register, Origins: []string{origin}}); err == nil {
			t.Errorf("%q is accepted", origin)
		}
	}
}

// A client that stops in the middle of its request is cut off.
func TestBodyTimeout(t *testing.T) {
	t.Parallel()
	served := make(chan struct{}, 1)
	s := start(t, &backend{get: func(context.Context, *bridgev1.GetSessionRequest) (
		*bridgev1.GetSessionResponse, error,
	) {
		served <- struct{}{}
		return nil, errors.New("served")
	}}, func(c *web.Config) { c.BodyTimeout = 50 * time.Millisecond })
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "POST "+getSession+" HTTP/1.1\r\nHost: localhost\r\n"+asJSON+
		"\r\nContent-Length: 100\r\n\r\n{\"sess"); err != nil {
		t.Fatal(err)
	}
	reply, err := io.ReadAll(conn) // until the server closes the connection
	if err != nil && !errors.Is(err, net.ErrClosed) || strings.Contains(string(reply), " 200 ") {
		t.Errorf("%q, %v", reply, err)
	}
	select {
	case <-served:
		t.Error("half a request was served")
	default:
	}
}
