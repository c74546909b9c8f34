package web_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server/rpc"
	"github.com/copilot-grpc/copilot-grpc/server/web"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	getSession = "/copilot.bridge.v1.SessionService/GetSession"
	subscribe  = "/copilot.bridge.v1.EventService/Subscribe"
	history    = "/copilot.cli.v1.SessionPlanService/Read"
)

// backend is a backend of which a test gives the parts it needs.
type backend struct {
	rpc.SessionBackend
	rpc.TurnBackend
	rpc.EventBackend
	get       func(context.Context, *bridgev1.GetSessionRequest) (*bridgev1.GetSessionResponse, error)
	subscribe func(context.Context, *bridgev1.SubscribeRequest, frame.Sink) error
	watch     func(ctx context.Context, open func() error) error
	call      func(method string, request []byte) ([]byte, error)
}

func (b *backend) GetSession(ctx context.Context, req *bridgev1.GetSessionRequest) (
	*bridgev1.GetSessionResponse, error,
) {
	return b.get(ctx, req)
}

func (b *backend) Subscribe(ctx context.Context, req *bridgev1.SubscribeRequest, emit frame.Sink) error {
	return b.subscribe(ctx, req, emit)
}

func (b *backend) WatchSessions(
	ctx context.Context, _ *bridgev1.WatchSessionsRequest, open func() error,
	_ func(*bridgev1.WatchSessionsResponse) error,
) error {
	return b.watch(ctx, open)
}

func (b *backend) CallCLI(_ context.Context, m protoreflect.MethodDescriptor, request []byte, _ bool, _ string,
	_ *bridgev1.RuntimeProfile,
) ([]byte, error) {
	return b.call(string(m.FullName()), request)
}

func (b *backend) register(r grpc.ServiceRegistrar) {
	rpc.NewSession(b, b, nil, nil, nil).Register(r)
	rpc.NewEvent(b, b).Register(r)
	rpc.NewSurface(b, false).Register(r)
}

// start serves the backend until the end of the test.
func start(t *testing.T, b *backend, change func(*web.Config)) *httptest.Server {
	t.Helper()
	c := web.Config{Register: b.register}
	if change != nil {
		change(&c)
	}
	h, err := web.New(c)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(func() {
		s.Close()
		h.Wait()
	})
	return s
}

// answer is what came back for a request.
type answer struct {
	status  int
	header  http.Header
	trailer http.Header
	body    string
}

// do sends a request. Headers are "Name: value".
func do(t *testing.T, s *httptest.Server, method, path, body string, headers ...string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
		}
		req.Header.Add(name, value)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, resp.Trailer, string(text)}
}

const asJSON = "Content-Type: application/json"

// post sends JSON.
func post(t *testing.T, s *httptest.Server, path, body string, headers ...string) answer {
	t.Helper()
	return do(t, s, http.MethodPost, path, body, append([]string{asJSON}, headers...)...)
}

// wireFrame is a frame that is encoded already, in two pieces.
func wireFrame(t *testing.T, m proto.Message) frame.Frame {
	t.Helper()
	data, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return frame.Frame{Wire: [][]byte{data[:1], data[1:]}}
}

func incoming(ctx context.Context) metadata.MD {
	md, _ := metadata.FromIncomingContext(ctx)
	return md
}
