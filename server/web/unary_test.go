package web_test

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server/web"
)

// echo replies with the request's session.
func echo(_ context.Context, r *bridgev1.GetSessionRequest) (*bridgev1.GetSessionResponse, error) {
	return &bridgev1.GetSessionResponse{Session: &bridgev1.Session{SessionId: r.GetSessionId()}}, nil
}

func TestUnaryCalls(t *testing.T) {
	t.Parallel()
	s := start(t, &backend{get: func(ctx context.Context, r *bridgev1.GetSessionRequest) (
		*bridgev1.GetSessionResponse, error,
	) {
		if r.GetSessionId() == "none" {
			return nil, fault.New(fault.SessionNotFound, "no such session").WithField("session_id")
		}
		return echo(ctx, r)
	}}, func(c *web.Config) { c.MaxRecvBytes = 1 << 10 })
	get := func(message string) string {
		return getSession + "?connect=v1&encoding=json&message=" + url.QueryEscape(message)
	}
	for name, tc := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
		want               []string
	}{
		"JSON": {"POST", getSession, `{"sessionId": "s"}`, []string{asJSON}, 200,
			[]string{`"sessionId":"s"`}},
		"names of protos": {"POST", getSession, `{"session_id": "s"}`, []string{asJSON}, 200,
			[]string{`"sessionId":"s"`}},
		"charset": {"POST", getSession, `{}`, []string{"Content-Type: application/json; charset=utf-8"}, 200,
			[]string{`{"session":{}}`}},
		"no text": {"POST", getSession, ``, []string{asJSON}, 200, []string{`{"session":{}}`}},
		"binary": {"POST", getSession, "\x0a\x01s", []string{"Content-Type: application/proto"}, 200,
			[]string{"\x0a\x03\x0a\x01s"}},
		"GET": {"GET", get(`{"sessionId":"s"}`), "", nil, 200, []string{`"sessionId":"s"`}},
		"error": {"POST", getSession, `{"sessionId": "none"}`, []string{asJSON}, 404, []string{`"code":"not_found"`,
			`"message":"no such session"`, `"reason":"SESSION_NOT_FOUND"`, `"field":"session_id"`}},
		"error in binary": {"POST", getSession, "\x0a\x04none", []string{"Content-Type: application/proto"}, 404,
			[]string{`"code":"not_found"`}},
		"unknown field": {"POST", getSession, `{"session": "s"}`, []string{asJSON}, 400,
			[]string{`"code":"invalid_argument"`, `unknown field \"session\"`, `"field":"session"`}},
		"wrong type": {"POST", getSession, `{"sessionId": 7}`, []string{asJSON}, 400,
			[]string{`"reason":"INVALID_FIELD"`, `"field":"sessionId"`}},
		"broken JSON": {"POST", getSession, `{"sessionId"`, []string{asJSON}, 400,
			[]string{`"reason":"INVALID_FIELD"`}},
		"broken binary": {"POST", getSession, "\x0a\x05s", []string{"Content-Type: application/proto"}, 400,
			[]string{`"reason":"INVALID_FIELD"`}},
		"too large": {"POST", getSession, `{"sessionId": "` + strings.Repeat("s", 2000) + `"}`, []string{asJSON}, 429,
			[]string{`"code":"resource_exhausted"`}},
		"other media type": {"POST", getSession, `x`, []string{"Content-Type: text/plain"}, 415,
			[]string{`"text/plain" is not served`, `send the header "Content-Type: application/json"`}},
		"no media type": {"POST", getSession, `{}`, nil, 415, []string{`"" is not served`}},
		"GET with effects": {"GET", "/copilot.bridge.v1.SessionService/Abort?connect=v1&encoding=json&message=%7B%7D",
			"", nil, 405, nil},
		"unknown method": {"POST", "/copilot.bridge.v1.SessionService/Get", `{}`, []string{asJSON}, 404,
			[]string{`"code":"unimplemented"`, `"reason":"METHOD_UNKNOWN"`}},
		"unknown service": {"POST", "/copilot.bridge.v1.Sessions/Get", `{}`, []string{asJSON}, 404,
			[]string{`"code":"unimplemented"`, `"reason":"METHOD_UNKNOWN"`}},
		"no method": {"GET", "/favicon.ico", ``, nil, 404, nil},
		"gRPC":      {"POST", getSession, "\x00\x00\x00\x00\x00", []string{"Content-Type: application/grpc"}, 200, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := do(t, s, tc.method, tc.path, tc.body, tc.headers...)
			if got.status != tc.status {
				t.Errorf("status %d, want %d: %s", got.status, tc.status, got.body)
			}
			for _, part := range tc.want {
				if !strings.Contains(got.body, part) {
					t.Errorf("%q is not in %q", part, got.body)
				}
			}
			if name == "gRPC" && got.trailer.Get("Grpc-Status") != "12" {
				t.Errorf("the status of gRPC is %v", got.trailer)
			}
		})
	}
}

// Requests and replies of copilot.cli.v1 are bytes for the backend, and JSON for the caller.
func TestMethodsOfTheCLI(t *testing.T) {
	t.Parallel()
	s := start(t, &backend{call: func(method string, request []byte) ([]byte, error) {
		if method != "copilot.cli.v1.SessionPlanService.Read" || string(request) != "\x0a\x01s" {
			return nil, fault.New(fault.Internal, "%s(%x)", method, request)
		}
		return nil, nil
	}}, nil)
	got := post(t, s, history, `{"sessionId": "s"}`)
	if got.status != http.StatusOK || got.body != "{}" {
		t.Errorf("%+v", got)
	}
	if got := post(t, s, history, `{"path": 1}`); got.status != http.StatusBadRequest {
		t.Errorf("an unknown field: %+v", got)
	}
}

// A call has the request's headers as metadata, without those of HTTP and of the browser, and sends its own.
func TestMetadata(t *testing.T) {
	t.Parallel()
	var seen metadata.MD
	s := start(t, &backend{get: func(ctx context.Context, r *bridgev1.GetSessionRequest) (
		*bridgev1.GetSessionResponse, error,
	) {
		seen = incoming(ctx)
		_ = grpc.SetHeader(ctx, metadata.Pairs("copilot-header", "h", "copilot-data-bin", "\x00\x01"))
		_ = grpc.SetTrailer(ctx, metadata.Pairs("copilot-trailer", "t"))
		return echo(ctx, r)
	}}, nil)
	got := post(t, s, getSession, `{}`, "Authorization: Bearer t", "Copilot-Request-Id: r", "Cookie: secret=1",
		"Sec-Fetch-Site: same-origin", "Copilot-Runtime-Profile-Bin: AAE", "Origin: "+s.URL,
		"Connect-Timeout-Ms: 60000")
	var names []string
	for name := range seen {
		names = append(names, name)
	}
	slices.Sort(names)
	if got := strings.Join(names, " "); got != ":authority authorization copilot-request-id "+
		"copilot-runtime-profile-bin user-agent" {
		t.Errorf("metadata: %s", got)
	}
	if v := seen.Get("copilot-runtime-profile-bin"); len(v) != 1 || v[0] != "\x00\x01" {
		t.Errorf("binary metadata: %q", v)
	}
	if got.header.Get("Copilot-Header") != "h" || got.header.Get("Copilot-Data-Bin") != "AAE" ||
		got.header.Get("Trailer-Copilot-Trailer") != "t" {
		t.Errorf("header: %v", got.header)
	}
}

// The interceptors of the gRPC server see the call, may refuse it, and may change its context.
func TestInterceptors(t *testing.T) {
	t.Parallel()
	type key struct{}
	s := start(t, &backend{get: func(ctx context.Context, r *bridgev1.GetSessionRequest) (
		*bridgev1.GetSessionResponse, error,
	) {
		if ctx.Value(key{}) == nil {
			return nil, fault.New(fault.Internal, "not by way of the interceptor")
		}
		return echo(ctx, r)
	}}, func(c *web.Config) {
		c.Unary = func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if r, ok := req.(*bridgev1.GetSessionRequest); !ok || r.GetSessionId() == "secret" {
				return nil, fault.New(fault.Forbidden, "refused %s", info.FullMethod)
			}
			return next(context.WithValue(ctx, key{}, 1), req)
		}
	})
	if got := post(t, s, getSession, `{"sessionId": "s"}`); got.status != http.StatusOK {
		t.Errorf("%+v", got)
	}
	if got := post(t, s, getSession, `{"sessionId": "secret"}`); got.status != http.StatusForbidden ||
		!strings.Contains(got.body, "refused "+getSession) {
		t.Errorf("%+v", got)
	}
}
