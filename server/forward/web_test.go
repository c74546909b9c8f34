package forward_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/forward"
)

// post sends JSON to a replica's listener for browsers.
func post(t *testing.T, r *replica, path, body string, headers ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.Server.WebAddr().String()+path,
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+r.Server.Token())
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	tr := &http.Transport{DisableKeepAlives: true}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// TestWeb makes calls of a browser that are relayed.
func TestWeb(t *testing.T) {
	t.Parallel()
	c := start(t, func(c *server.Config) { c.Web = &server.Web{Listen: "127.0.0.1:0"} }, "a", "b")
	c.set("s", "b")
	c.replicas["b"].backend.subscribe = func(
		_ context.Context, r *bridgev1.SubscribeRequest, emit frame.Sink,
	) error {
		if err := emit(encoded(t, heartbeat("s", r.GetSessions()[0].GetAfter().GetSeq()+1))); err != nil {
			return err
		}
		return fault.New(fault.SessionBusy, "busy")
	}
	entry := c.replicas["a"]
	text := func(resp *http.Response) string {
		out, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	resp := post(t, entry, bridgev1.SessionService_GetSession_FullMethodName, `{"sessionId": "s"}`)
	var reply bridgev1.GetSessionResponse
	if err := protojson.Unmarshal([]byte(text(resp)), &reply); err != nil || reply.GetSession().GetName() != "b" ||
		resp.Header.Get(forward.HeaderOwner) != "b" {
		t.Errorf("unary: %v, %v, header %v", &reply, err, resp.Header)
	}
	// An EventSource continues after the last event's position.
	resp = post(t, entry, bridgev1.EventService_Subscribe_FullMethodName, `{"sessions": [{"sessionId": "s"}]}`,
		"Accept", "text/event-stream", "Last-Event-ID", "1/41")
	if got := text(resp); !strings.Contains(got, "id: 1/42\n") || !strings.Contains(got, "SESSION_BUSY") {
		t.Errorf("events: %s", got)
	}
	resp = post(t, entry, bridgev1.EventService_Subscribe_FullMethodName, `{"sessions": [{"sessionId": "s"}]}`)
	if got := text(resp); !strings.Contains(got, `"seq":"1"`) || !strings.Contains(got, "SESSION_BUSY") {
		t.Errorf("lines: %s", got)
	}
}

func (b *backend) CallCLI(_ context.Context, m protoreflect.MethodDescriptor, request []byte, exact bool, id string,
	_ *bridgev1.RuntimeProfile,
) ([]byte, error) {
	var r cliv1.SessionNameServiceSetRequest
	if err := proto.Unmarshal(request, &r); err != nil {
		return nil, err
	}
	return nil, fault.New(fault.CLIError, "%s %s %s %s %v", b.node, m.Name(), r.GetName(), id, exact)
}

// TestSurface relays a method of copilot.cli.v1, whose requests are bytes at both replicas.
func TestSurface(t *testing.T) {
	t.Parallel()
	c := start(t, nil, "a", "b")
	c.set("s", "b")
	_, err := cliv1.NewSessionNameServiceClient(c.replicas["a"].Conn).Set(t.Context(),
		&cliv1.SessionNameServiceSetRequest{SessionId: "s", Name: "n"})
	if err == nil || !strings.Contains(err.Error(), "b Set n  false") {
		t.Errorf("error %v", err)
	}
}
