package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"testing"
	"time"

	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

// through changes what passes a proxy: a request on its way to the server, and the response.
type through func(to http.RoundTripper, r *http.Request) (*http.Response, error)

// proxyTo is a proxy before the server on a socket; with TLS if it has a certificate.
func proxyTo(t *testing.T, target string, passes through, secure *tls.Config) (address string) {
	t.Helper()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(target, "unix:"))
	}
	transport := &http.Transport{Protocols: new(http.Protocols), DialContext: dial}
	transport.Protocols.SetUnencryptedHTTP2(true)
	silent := log.New(io.Discard, "", 0)
	proxy := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		ErrorLog: silent,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", "localhost", "localhost"
		},
		Transport: roundTrip(func(r *http.Request) (*http.Response, error) { return passes(transport, r) }),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
				w.WriteHeader(http.StatusRequestEntityTooLarge)
			} else {
				w.WriteHeader(http.StatusBadGateway)
			}
		},
	})
	proxy.Config.ErrorLog = silent
	proxy.Config.Protocols = new(http.Protocols)
	proxy.Config.Protocols.SetUnencryptedHTTP2(true)
	proxy.Config.Protocols.SetHTTP2(true)
	if secure != nil {
		proxy.TLS = secure
		proxy.EnableHTTP2 = true
		proxy.StartTLS()
	} else {
		proxy.Start()
	}
	t.Cleanup(func() {
		proxy.CloseClientConnections()
		proxy.Close()
		transport.CloseIdleConnections()
	})
	return proxy.Listener.Addr().String()
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func plain(to http.RoundTripper, r *http.Request) (*http.Response, error) { return to.RoundTrip(r) }

func stripsTrailers(to http.RoundTripper, r *http.Request) (*http.Response, error) {
	resp, err := to.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	stripped := *resp // the transport sets the trailers of the other one
	stripped.Trailer = nil
	return &stripped, nil
}

func stripsDetails(to http.RoundTripper, r *http.Request) (*http.Response, error) {
	resp, err := to.RoundTrip(r)
	if err == nil {
		resp.Header.Del("Grpc-Status-Details-Bin")
	}
	return resp, err
}

func buffersRequests(to http.RoundTripper, r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	return to.RoundTrip(r)
}

func limitsRequests(to http.RoundTripper, r *http.Request) (*http.Response, error) {
	r.Body = http.MaxBytesReader(nil, r.Body, 1<<20)
	return to.RoundTrip(r)
}

func limitsAnswers(to http.RoundTripper, r *http.Request) (*http.Response, error) {
	resp, err := to.RoundTrip(r)
	if err == nil {
		resp.Body = http.MaxBytesReader(nil, resp.Body, 16<<10)
	}
	return resp, err
}

// cutsStreams ends watches of sessions when a time has passed since their beginning, or since their last message.
func cutsStreams(after time.Duration, idle bool) through {
	return func(to http.RoundTripper, r *http.Request) (*http.Response, error) {
		resp, err := to.RoundTrip(r)
		if err == nil && strings.HasSuffix(r.URL.Path, "/WatchSessions") {
			body := resp.Body
			resp.Body = &cutBody{body, time.AfterFunc(after, func() { _ = body.Close() }), after, idle}
		}
		return resp, err
	}
}

type cutBody struct {
	io.ReadCloser
	timer *time.Timer
	after time.Duration
	idle  bool
}

func (b *cutBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.idle && n > 0 {
		b.timer.Reset(b.after)
	}
	return n, err
}

func (b *cutBody) Close() error {
	b.timer.Stop()
	return b.ReadCloser.Close()
}

// withoutPath knows no paths with a text.
func withoutPath(text string) through {
	return func(to http.RoundTripper, r *http.Request) (*http.Response, error) {
		if strings.Contains(r.URL.Path, text) {
			return &http.Response{StatusCode: http.StatusNotFound, Body: http.NoBody, Header: http.Header{}}, nil
		}
		return to.RoundTrip(r)
	}
}

// Each need that a proxy breaks is named, with the setting that mends it, and no other need is. The exit code is that
// of other findings.
func TestDoctorTargetNamesWhatAProxyBreaks(t *testing.T) {
	t.Parallel()
	target := server(t)
	for name, tc := range map[string]struct {
		passes               through
		flags                string
		broken, says, mended string
		restIsNotTried       bool
	}{
		"a plain proxy": {passes: plain, flags: " --idle 1s"},
		"trailers are stripped": {stripsTrailers, "", "trailers", "no status: Internal", "grpc_pass, not proxy_pass",
			true},
		"details are stripped": {stripsDetails, "", "trailers", "no reason: NotFound", "grpc_pass, not proxy_pass",
			false},
		"requests are buffered": {buffersRequests, "", "bidirectional", "may still send: DeadlineExceeded",
			"no buffer filter", false},
		"requests are limited": {limitsRequests, "", "request size", "16 MiB, which", "client_max_body_size", false},
		"answers are limited":  {limitsAnswers, "", "answer size", "does not arrive", "no buffer filter", false},
		"streams have a limit": {cutsStreams(500*time.Millisecond, false), "", "half-close", "a stream ends",
			"timeout: 0s", false},
		"idle streams are cut": {cutsStreams(3*time.Second, true), " --idle 6s", "idle streams", "every 6s ends after",
			"stream_idle_timeout", false},
		"health is not routed": {withoutPath("grpc.health"), "", "health", "Check fails", "/grpc.health.v1.Health/",
			false},
		"watches are not routed": {withoutPath("Health/Watch"), "", "health", "Watch fails", "/grpc.health.v1.Health/",
			false},
		"nothing is routed": {withoutPath("/"), "", "identity", "Unimplemented", "every path", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := "doctor --json --target " + proxyTo(t, target, tc.passes, nil) + tc.flags
			r := run(t, nil, "", strings.Fields(args)...)
			var found []struct{ Level, Subject, Text, Remedy string }
			if err := json.Unmarshal([]byte(r.stdout), &found); err != nil || r.stderr != "" {
				t.Fatalf("%v: %+v", err, r)
			}
			broken := ""
			for _, f := range found {
				if f.Level != "error" {
					continue
				}
				broken += f.Subject
				if !strings.Contains(f.Text, tc.says) || !strings.Contains(f.Remedy, tc.mended) {
					t.Errorf("%+v", f)
				}
			}
			code := exitOK
			if tc.broken != "" {
				code = exitFailed
			}
			if broken != tc.broken || r.code != code || len(found) < 8 != tc.restIsNotTried {
				t.Errorf("%q is broken, code %d:\n%s", broken, r.code, r.stdout)
			}
		})
	}
}

// A server without a proxy breaks nothing, and is left as it was.
func TestDoctorTarget(t *testing.T) {
	t.Parallel()
	to := " --target " + server(t)
	r := run(t, nil, "", strings.Fields("doctor"+to)...)
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	for i, want := range []string{
		"connection: to unix:", "identity: socket, admin of the tenant host, known by the unix socket",
		"trailers: a call that fails has its reason, SESSION_NOT_FOUND", "bidirectional: ", "half-close: ",
		"request size: a request of 16 MiB arrives", "answer size: an answer of ", "health: Check and Watch report SERVING",
		"idle streams: not tried: --idle 90s",
	} {
		if i >= len(lines) || !strings.HasPrefix(lines[i], "ok       "+want) {
			t.Fatalf("%q is missing in %+v", want, r)
		}
	}
	if r.code != exitOK {
		t.Errorf("%+v", r)
	}
	expect(t, nil, "sessions list -o json"+to, result{exitOK, "", ""})
	expect(t, nil, "doctor --listen unix:/x"+to, result{exitUsage, "", "--listen is about a server to be started"})
	expect(t, nil, "doctor --start"+to, result{exitUsage, "", "--start is about a server to be started"})
	expect(t, nil, "doctor --idle 1s", result{exitUsage, "", "--idle wants --target or --context"})
	expect(t, nil, "doctor --target http://x:1", result{exitUsage, "", "is a URL"})
	expect(t, nil, "doctor --target unix:/none", result{exitFailed, "MISSING  connection: Unavailable: ", ""})
	// A target of the environment is that of other commands.
	local := run(t, []string{"COPILOT_GRPC_TARGET=unix:/none"}, "", "doctor", "--cli", "/nowhere/copilot", "--data-dir",
		t.TempDir(), "--listen", "unix:"+socket(t))
	if !strings.Contains(local.stdout, "MISSING  copilot CLI: ") {
		t.Errorf("with a target in the environment: %+v", local)
	}
}

// The connection's line has the TLS of a proxy, or what is wrong with it.
func TestDoctorTargetWithTLS(t *testing.T) {
	t.Parallel()
	target, ca := server(t), servertest.NewCA(t)
	local, nameless := ca.IssueLocal(t), ca.Issue(t)
	env := []string{"XDG_CONFIG_HOME=" + t.TempDir()}
	for name, tc := range map[string]struct {
		cert, key string
		protocols []string
		want      result
	}{
		"fine": {local.CertFile, local.KeyFile, nil,
			result{exitOK, "TLS 1.3, with a certificate for localhost, ALPN h2\n", ""}},
		"wrong name": {nameless.CertFile, nameless.KeyFile, nil,
			result{exitFailed, "MISSING  connection: Unavailable: ", ""}},
		"without h2": {local.CertFile, local.KeyFile, []string{"http/1.1"},
			result{exitFailed, "the proxy must listen with HTTP/2", ""}},
		"another CA": {local.CertFile, local.KeyFile, nil, result{exitFailed, "has the flags for its CA", ""}},
	} {
		pair, err := tls.LoadX509KeyPair(tc.cert, tc.key)
		if err != nil {
			t.Fatal(err)
		}
		authority := local.CAFile
		if name == "another CA" {
			authority = servertest.NewCA(t).Issue(t).CAFile
		}
		named := strings.ReplaceAll(name, " ", "-")
		expect(t, env, "context add "+named+" --target "+proxyTo(t, target, plain, &tls.Config{
			Certificates: []tls.Certificate{pair}, NextProtos: tc.protocols})+" --tls-ca "+authority, result{exitOK, "", ""})
		expect(t, env, "doctor --context "+named, tc.want)
	}
}
