package server_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

const (
	webInfo      = "/copilot.bridge.v1.RuntimeService/GetServerInfo"
	webSubscribe = "/copilot.bridge.v1.EventService/Subscribe"
	webToken     = "a-token-of-a-test-server"
)

// fetch sends an empty request in JSON to the listener for browsers. The caller closes the body.
func fetch(t *testing.T, r *servertest.Running, client *http.Client, path, token string) *http.Response {
	t.Helper()
	return fetchBody(t, r, client, path, token, "{}")
}

// fetchBody sends a request; one that does not begin with "{" is compressed.
func fetchBody(t *testing.T, r *servertest.Running, client *http.Client, path, token, body string) *http.Response {
	t.Helper()
	scheme := "http://"
	if tr, ok := client.Transport.(*http.Transport); ok && tr.TLSClientConfig != nil {
		scheme = "https://"
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, scheme+r.Server.WebAddr().String()+path,
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if body[0] != '{' {
		req.Header.Set("Content-Encoding", "gzip")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// browser returns a client whose connections end with the test.
func browser(t *testing.T, c *tls.Config) *http.Client {
	t.Helper()
	tr := &http.Transport{TLSClientConfig: c, ForceAttemptHTTP2: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func textOf(t *testing.T, resp *http.Response) string {
	t.Helper()
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Calls by HTTP need the same proof as those by gRPC, and have the same log. Unknown methods are refused.
func TestWebNeedsTheToken(t *testing.T) {
	t.Parallel()
	r, log := logged(t, server.Config{Web: &server.Web{Listen: "127.0.0.1:0"}, Token: webToken}, info{})
	for token, want := range map[string]int{"": 401, "another-token-of-16": 401, webToken: 200} {
		resp := fetch(t, r, browser(t, nil), webInfo, token)
		if text := textOf(t, resp); resp.StatusCode != want || want == 200 && !strings.HasPrefix(text, `{"version":"v",`) {
			t.Errorf("token %q: status %d: %s", token, resp.StatusCode, text)
		}
	}
	resp := fetch(t, r, browser(t, nil), "/copilot.bridge.v1.SessionService/Log", webToken)
	if text := textOf(t, resp); !strings.Contains(text, "the server has no method") {
		t.Errorf("an unknown method: %s", text)
	}
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	if text := log.String(); !strings.Contains(text, webInfo) || strings.Contains(text, webToken) {
		t.Errorf("the log: %s", text)
	}
}

// A request that cannot be read is refused for the missing proof first, and is in the log.
func TestWebAuthenticatesUnreadableRequests(t *testing.T) {
	t.Parallel()
	r, log := logged(t, server.Config{Web: &server.Web{Listen: "127.0.0.1:0"}, Token: webToken}, info{})
	for token, want := range map[string]int{"": 401, "another-token-of-16": 401, webToken: 400} {
		resp := fetchBody(t, r, browser(t, nil), webInfo, token, "{no JSON")
		text := textOf(t, resp)
		if resp.StatusCode != want || strings.Contains(text, "INVALID_FIELD") != (want == 400) {
			t.Errorf("token %q: status %d, want %d: %s", token, resp.StatusCode, want, text)
		}
	}
	if err := r.Stop(); err != nil {
		t.Fatal(err)
	}
	if text := log.String(); strings.Count(text, webInfo) != 3 {
		t.Errorf("the log: %s", text)
	}
}

// With a policy the role decides, over HTTP/1.1 and HTTP/2, and limits count.
func TestWebFollowsThePolicy(t *testing.T) {
	t.Parallel()
	a, dir := newAuthority(t), t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	cert, key := a.issue(1, "")
	write(t, file("cert"), cert)
	write(t, file("key"), key)
	write(t, file("ca"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
	write(t, file("policy"), []byte(`version: 1
identity: {certificates: true}
tenants:
  acme:
    members: [{spiffe: 'spiffe://corp/observer', role: observer}, {spiffe: 'spiffe://corp/owner', role: owner}]
    limits: {requests_per_second: 0.001, burst: 3}
`))
	p, err := policy.Open(file("policy"), slog.New(slog.DiscardHandler), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	r := servertest.Start(t, server.Config{Policy: p, Web: &server.Web{Listen: "127.0.0.1:0"},
		TLS: &server.TLS{CertFile: file("cert"), KeyFile: file("key"), ClientCAFile: file("ca")}}, info{}, &sessions{})
	send := "/copilot.bridge.v1.SessionService/Send"
	for _, tc := range []struct {
		who, path, protocol string
		status              int
		reason              string
	}{
		{"spiffe://corp/observer", webInfo, "HTTP/2.0", 200, ""},
		{"spiffe://corp/observer", webInfo, "HTTP/1.1", 200, ""},
		{"spiffe://corp/observer", send, "HTTP/2.0", 403, "FORBIDDEN"},
		{"spiffe://corp/stranger", webInfo, "HTTP/2.0", 403, "FORBIDDEN"},
		{"spiffe://corp/owner", webInfo, "HTTP/1.1", 200, ""},
		{"spiffe://corp/owner", webInfo, "HTTP/2.0", 429, "LIMIT_EXCEEDED"},
	} {
		c := a.client(tc.who)
		client := browser(t, c)
		if tc.protocol == "HTTP/1.1" {
			c.NextProtos = []string{"http/1.1"}
			client.Transport.(*http.Transport).ForceAttemptHTTP2 = false
		}
		resp := fetch(t, r, client, tc.path, "")
		text := textOf(t, resp)
		if resp.StatusCode != tc.status || resp.Proto != tc.protocol || !strings.Contains(text, tc.reason) {
			t.Errorf("%s %s: %s, status %d, want %d: %s", tc.who, tc.path, resp.Proto, resp.StatusCode, tc.status, text)
		}
	}
}

// A stream gets its last frame when the server stops, and Run returns after its handler.
func TestWebDrains(t *testing.T) {
	t.Parallel()
	draining := make(chan struct{})
	e := &events{subscribe: func(_ context.Context, emit frame.Sink) error {
		if err := emit(frame.Frame{Message: &bridgev1.SubscribeResponse{SessionId: "s"}}); err != nil {
			return err
		}
		<-draining
		return emit(frame.Frame{Message: goAway})
	}}
	r := servertest.Start(t, server.Config{Web: &server.Web{Listen: "127.0.0.1:0"}, Token: webToken, DrainTimeout: long,
		StopTimeout: long, Drainer: drainer(func(context.Context) error {
			close(draining)
			return nil
		})}, e)
	resp := fetch(t, r, browser(t, nil), webSubscribe, webToken)
	defer func() { _ = resp.Body.Close() }()
	lines := bufio.NewScanner(resp.Body)
	if !lines.Scan() || lines.Text() != `{"sessionId":"s"}` {
		t.Fatalf("the first line is %q, %v", lines.Text(), lines.Err())
	}
	stopped := make(chan error, 1)
	go func() { stopped <- r.Stop() }()
	if !lines.Scan() || lines.Text() != `{"goAway":{}}` {
		t.Errorf("the last line is %q, %v", lines.Text(), lines.Err())
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// Calls that do not end in time are cancelled.
func TestWebStopCutsOffStreams(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	e := &events{subscribe: func(ctx context.Context, emit frame.Sink) error {
		defer close(ended)
		if err := emit(frame.Frame{Message: &bridgev1.SubscribeResponse{SessionId: "s"}}); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}}
	r := servertest.Start(t, server.Config{Web: &server.Web{Listen: "127.0.0.1:0"}, Token: webToken,
		StopTimeout: 50 * time.Millisecond}, e)
	resp := fetch(t, r, browser(t, nil), webSubscribe, webToken)
	defer func() { _ = resp.Body.Close() }()
	if _, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if err := r.Stop(); err != nil {
		t.Error(err)
	}
	select {
	case <-ended:
	default:
		t.Error("Run returned before the handler")
	}
}

// Connections of browsers count like others, and a panic ends its own call only.
func TestWebConnectionsCount(t *testing.T) {
	t.Parallel()
	e := &events{subscribe: func(context.Context, frame.Sink) error { panic("oops") }}
	r := servertest.Start(t, server.Config{Web: &server.Web{Listen: "127.0.0.1:0"}, Token: webToken, MaxStrangers: 1,
		StrangerTime: long}, e, info{})
	resp := fetch(t, r, browser(t, nil), webSubscribe, webToken)
	if text := textOf(t, resp); resp.StatusCode != http.StatusInternalServerError || strings.Contains(text, "oops") {
		t.Errorf("after a panic: %d, %s", resp.StatusCode, text)
	}
	first := rawConn(t, r)
	second := rawConn(t, r)
	if _, err := first.Read(make([]byte, 1)); err == nil { // the second stranger closes the first
		t.Error("the first connection got an answer")
	}
	_ = second.Close()
	if resp := fetch(t, r, browser(t, nil), webInfo, webToken); resp.StatusCode != http.StatusOK {
		t.Errorf("afterwards: %d, %s", resp.StatusCode, textOf(t, resp))
	}
}

// rawConn opens a connection to the listener for browsers and sends nothing.
func rawConn(t *testing.T, r *servertest.Running) net.Conn {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", r.Server.WebAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// Requests by HTTP count in the same budgets as those by gRPC, with the size that they have unpacked.
func TestWebRequestBytes(t *testing.T) {
	t.Parallel()
	running, release := make(chan struct{}, 2), make(chan struct{})
	slow := &sessions{get: func(context.Context, *bridgev1.GetSessionRequest) (*bridgev1.GetSessionResponse, error) {
		running <- struct{}{}
		<-release
		return new(bridgev1.GetSessionResponse), nil
	}}
	s := startTenanted(t, "caller_request_bytes: 1000000",
		server.Config{Web: &server.Web{Listen: "127.0.0.1:0"}}, slow)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := io.WriteString(w, "{"+strings.Repeat(" ", 900_000)+"}"); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	const get = "/copilot.bridge.v1.SessionService/GetSession"
	call := func(name, body string) int {
		resp := fetchBody(t, s.Running, browser(t, nil), get, tokenOf(name), body)
		text := textOf(t, resp)
		if resp.StatusCode != http.StatusOK && !strings.Contains(text, "caller_request_bytes") {
			t.Errorf("status %d: %s", resp.StatusCode, text)
		}
		return resp.StatusCode
	}
	first, other := make(chan int, 1), make(chan int, 1)
	go func() { first <- call("acme", packed.String()) }()
	<-running
	if got := call("acme", packed.String()); got != http.StatusTooManyRequests {
		t.Errorf("a second large request: status %d", got)
	}
	go func() { other <- call("acme2", packed.String()) }()
	<-running
	close(release)
	if got := <-other; got != http.StatusOK {
		t.Errorf("another caller: status %d", got)
	}
	if got := <-first; got != http.StatusOK {
		t.Errorf("the first request: status %d", got)
	}
	if got := call("acme", packed.String()); got != http.StatusOK {
		t.Errorf("after it: status %d", got)
	}
}
