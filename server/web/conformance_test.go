package web_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/copilot-grpc/copilot-grpc/server/web"
)

// The tests of this file cover faults that the Connect conformance suite found (make connect-conformance).

const (
	check = "/grpc.health.v1.Health/Check"
	watch = "/grpc.health.v1.Health/Watch"
	// empty is an enveloped message without fields, emptyJSON the same in JSON.
	empty     = "\x00\x00\x00\x00\x00"
	emptyJSON = "\x00\x00\x00\x00\x02{}"
)

// silent is a health service whose calls end without a message, as end says.
type silent struct {
	grpc_health_v1.UnimplementedHealthServer
	end func(context.Context) error
}

func (s silent) Check(
	ctx context.Context, _ *grpc_health_v1.HealthCheckRequest,
) (*grpc_health_v1.HealthCheckResponse, error) {
	return nil, s.end(ctx)
}

func (s silent) Watch(_ *grpc_health_v1.HealthCheckRequest, stream grpc_health_v1.Health_WatchServer) error {
	return s.end(stream.Context())
}

// startSilent serves a silent service until the end of the test.
func startSilent(t *testing.T, change func(*web.Config), end func(context.Context) error) *httptest.Server {
	t.Helper()
	return start(t, &backend{}, func(c *web.Config) {
		c.Register = func(r grpc.ServiceRegistrar) { grpc_health_v1.RegisterHealthServer(r, silent{end: end}) }
		if change != nil {
			change(c)
		}
	})
}

// A call that ends without a message sends the header that its handler set, as gRPC does.
func TestHeaderWithoutMessage(t *testing.T) {
	t.Parallel()
	ends := func(err error) func(context.Context) error {
		return func(ctx context.Context) error {
			_ = grpc.SetHeader(ctx, metadata.Pairs("x-header", "one", "x-header", "two"))
			return err
		}
	}
	good, failed := startSilent(t, nil, ends(nil)), startSilent(t, nil, ends(status.Error(codes.DataLoss, "lost")))
	for name, tc := range map[string]struct {
		s                *httptest.Server
		path, kind, body string
		status           int
	}{
		"unary, Connect":   {failed, check, "application/json", "{}", 500},
		"unary, gRPC-Web":  {failed, check, "application/grpc-web", empty, 200},
		"stream, Connect":  {failed, watch, "application/connect+json", emptyJSON, 200},
		"stream, gRPC-Web": {failed, watch, "application/grpc-web", empty, 200},
		"stream, lines":    {failed, watch, "application/json", "{}", 500},
		"no error":         {good, watch, "application/connect+json", emptyJSON, 200},
		"no error, lines":  {good, watch, "application/json", "{}", 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := do(t, tc.s, http.MethodPost, tc.path, tc.body, "Content-Type: "+tc.kind)
			if strings.Join(got.header.Values("X-Header"), " ") != "one two" || got.status != tc.status {
				t.Errorf("%+v", got)
			}
		})
	}
}

// Over gRPC-Web, a call of an unknown service or method has an HTTP status of success, and gRPC's own status.
func TestUnknownOverGRPCWeb(t *testing.T) {
	t.Parallel()
	s := startSilent(t, nil, nil)
	for _, path := range []string{"/grpc.health.v1.Health/Missing", "/grpc.missing.v1.Missing/Check"} {
		got := do(t, s, http.MethodPost, path, empty, "Content-Type: application/grpc-web")
		if got.status != http.StatusOK || got.header.Get("Grpc-Status") != "12" {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

// Errors have the details of package server/status, unless the configuration converts them.
func TestDetailsOfErrors(t *testing.T) {
	t.Parallel()
	full := func(context.Context) error { return status.Error(codes.ResourceExhausted, "full") }
	detailed := startSilent(t, nil, full)
	plain := startSilent(t, func(c *web.Config) { c.Status = status.Convert }, full)
	for name, tc := range map[string]struct{ path, kind, body string }{
		"unary":  {check, "application/json", "{}"},
		"stream": {watch, "application/connect+json", emptyJSON},
		"lines":  {watch, "application/json", "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind := "Content-Type: " + tc.kind
			got := do(t, detailed, http.MethodPost, tc.path, tc.body, kind)
			if !strings.Contains(got.body, "resource_exhausted") || !strings.Contains(got.body, "LIMIT_EXCEEDED") {
				t.Errorf("by default: %+v", got)
			}
			got = do(t, plain, http.MethodPost, tc.path, tc.body, kind)
			if !strings.Contains(got.body, "resource_exhausted") || strings.Contains(got.body, "details") {
				t.Errorf("converted: %+v", got)
			}
		})
	}
}

// The server ends a call at its deadline and sends the error, to clients without a timer too. The suite's client has
// its own timer, and gives up at the same time.
func TestDeadline(t *testing.T) {
	t.Parallel()
	s := startSilent(t, nil, func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	if transport, ok := s.Client().Transport.(*http.Transport); ok {
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetUnencryptedHTTP2(true)
	}
	for name, tc := range map[string]struct{ path, kind, body, timeout string }{
		"unary, Connect":   {check, "application/json", "{}", "Connect-Timeout-Ms: 20"},
		"unary, gRPC-Web":  {check, "application/grpc-web", empty, "Grpc-Timeout: 20m"},
		"stream, Connect":  {watch, "application/connect+json", emptyJSON, "Connect-Timeout-Ms: 20"},
		"stream, gRPC-Web": {watch, "application/grpc-web", empty, "Grpc-Timeout: 20m"},
		"stream, lines":    {watch, "application/json", "{}", "Connect-Timeout-Ms: 20"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := do(t, s, http.MethodPost, tc.path, tc.body, "Content-Type: "+tc.kind, tc.timeout)
			if !strings.Contains(got.body, "deadline_exceeded") && got.header.Get("Grpc-Status") != "4" {
				t.Errorf("%+v", got)
			}
		})
	}
}
