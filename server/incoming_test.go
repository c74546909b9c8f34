package server_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/copilot-grpc/copilot-grpc/bridge/frame"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/codec"
)

const (
	subscribePath = "/copilot.bridge.v1.EventService/Subscribe"
	getOne        = "/copilot.bridge.v1.SessionService/GetSession"
)

// stalled is a body that never ends: it has some bytes, and then waits until it is closed or its request is over.
type stalled struct {
	io.Reader
	ctx    context.Context //nolint:containedctx // of the request
	closed chan struct{}
	once   sync.Once
}

func stall(ctx context.Context, r io.Reader) *stalled {
	return &stalled{Reader: r, ctx: ctx, closed: make(chan struct{})}
}

func (s *stalled) Read(p []byte) (int, error) {
	if n, _ := s.Reader.Read(p); n > 0 {
		return n, nil
	}
	select {
	case <-s.closed:
	case <-s.ctx.Done():
	}
	return 0, io.ErrClosedPipe
}

func (s *stalled) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}

// post sends a request to the listener for browsers on a connection of its own, which is authenticated by an earlier
// call.
func (s *tenanted) post(ctx context.Context, http2 bool, name, path, kind string, body io.Reader) (int, string, error) {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetUnencryptedHTTP2(http2)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	defer client.CloseIdleConnections()
	if code, text, err := s.postOn(ctx, client, name, serverInfo, "application/json", strings.NewReader("{}")); code != 200 {
		return code, text, err
	}
	return s.postOn(ctx, client, name, path, kind, body)
}

// postOn sends a request by a client.
func (s *tenanted) postOn(ctx context.Context, client *http.Client, name, path, kind string, body io.Reader) (
	int, string, error,
) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.Server.WebAddr().String()+path, body)
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Authorization", "Bearer "+tokenOf(name))
	req.Header.Set("Content-Type", kind)
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text) + resp.Header.Get("Grpc-Message") + resp.Header.Get("Copilot-Reason"), err
}

// envelope is a message of a stream, of which only a part follows.
func envelope(size int, part string) io.Reader {
	head := make([]byte, 5)
	binary.BigEndian.PutUint32(head[1:], uint32(size)) //nolint:gosec // small
	return io.MultiReader(bytes.NewReader(head), strings.NewReader(part))
}

// Bodies on the listener for browsers count as they arrive, whether they end or not: those above the caller's limit are
// refused, and other callers are served.
func TestUnfinishedBodiesCount(t *testing.T) { //nolint:paralleltest // it measures the process
	const limit, each, connections = 8_000_000, 1_000_000, 30
	spaces := strings.Repeat(" ", each) // of all requests, so that the clients need little memory
	for name, tc := range map[string]struct {
		path, kind string
		body       func() io.Reader
	}{
		"unary, JSON":     {serverInfo, "application/json", func() io.Reader { return strings.NewReader(spaces) }},
		"unary, binary":   {serverInfo, "application/proto", func() io.Reader { return strings.NewReader(spaces) }},
		"lines":           {subscribePath, "application/json", func() io.Reader { return strings.NewReader(spaces) }},
		"Connect, stream": {subscribePath, "application/connect+json", func() io.Reader { return envelope(10*each, spaces) }},
		"gRPC-Web":        {serverInfo, "application/grpc-web+proto", func() io.Reader { return envelope(10*each, spaces) }},
	} {
		for _, http2 := range []bool{false, true} {
			t.Run(name+map[bool]string{false: ", HTTP/1.1", true: ", HTTP/2"}[http2], func(t *testing.T) {
				s := startTenanted(t, "caller_request_bytes: 8000000", server.Config{Web: &server.Web{Listen: "127.0.0.1:0"}},
					&events{})
				_, base := footprint()
				ctx, cancel := context.WithCancel(t.Context())
				answers := make(chan string, connections)
				var group sync.WaitGroup
				for range connections {
					group.Go(func() {
						_, text, err := s.post(ctx, http2, "acme", tc.path, tc.kind, stall(ctx, tc.body()))
						if ctx.Err() == nil {
							answers <- text + errorText(err)
						}
					})
				}
				named := 0
				for range connections - limit/each {
					select {
					case text := <-answers:
						if strings.Contains(text, "caller_request_bytes") {
							named++
						} else if http2 || !strings.Contains(text, "connection reset") && !strings.Contains(text, "broken pipe") {
							t.Errorf("a request is answered with %q", text) // a client that still writes may miss the answer
						}
					case <-time.After(20 * time.Second):
						t.Fatal("bodies above the limit are not refused")
					}
				}
				if named == 0 {
					t.Error("no answer names the limit")
				}
				if _, now := footprint(); now-base > 8*limit { // the client's and the server's buffers
					t.Errorf("%d bytes of bodies need %d", limit, now-base)
				}
				if code, text, err := s.post(t.Context(), http2, "acme2", serverInfo, "application/json",
					strings.NewReader("{}")); code != http.StatusOK {
					t.Errorf("another caller: %d %q, %v", code, text, err)
				}
				cancel()
				group.Wait()
				eventually(t, "room", func() bool {
					code, _, _ := s.post(t.Context(), http2, "acme", serverInfo, "application/json", strings.NewReader("{}"))
					return code == http.StatusOK
				})
			})
		}
	}
}

// elements are requests of many elements in few bytes.
func elements(n int) (json, wire []byte) {
	return []byte(`{"sessions":[{}` + strings.Repeat(",{}", n-1) + `]}`), bytes.Repeat([]byte{0x0a, 0}, n)
}

func enveloped(message []byte) []byte {
	out := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))) //nolint:gosec // small
	return append(out, message...)
}

// Requests of millions of elements are refused before they are decoded, with the field and its bound, and others are
// served meanwhile.
func TestTooManyElements(t *testing.T) { //nolint:paralleltest // it measures the process
	s := startTenanted(t, "", server.Config{Web: &server.Web{Listen: "127.0.0.1:0"}}, &events{})
	r := *s.Running
	r.Conn = s.Dial(t, 0, grpc.WithPerRPCCredentials(bearer(tokenOf("rival"))))
	text, wire := elements(5 << 20)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write(text)
	_ = z.Close()
	overWeb := func(http2 bool, kind string, body []byte) func() string {
		return func() string {
			_, said, err := s.post(t.Context(), http2, "acme2", subscribePath, kind, bytes.NewReader(body))
			return said + errorText(err)
		}
	}
	conn := s.Dial(t, 0, grpc.WithPerRPCCredentials(bearer(tokenOf("acme2"))), grpc.WithDefaultCallOptions(
		grpc.ForceCodecV2(codec.New())))
	overGRPC := func() string {
		raw := &wireMessage{wire}
		stream, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, subscribePath)
		if err == nil {
			if err = errors.Join(stream.SendMsg(raw), stream.CloseSend()); err == nil {
				err = stream.RecvMsg(&codec.Raw{})
			}
		}
		wantViolation(t, err, "sessions")
		return errorText(err)
	}
	for name, attack := range map[string]func() string{
		"lines, HTTP/1.1":        overWeb(false, "application/json", text),
		"lines, HTTP/2":          overWeb(true, "application/json", text),
		"Connect JSON, HTTP/2":   overWeb(true, "application/connect+json", enveloped(text)),
		"Connect proto, HTTP/1":  overWeb(false, "application/connect+proto", enveloped(wire)),
		"gRPC-Web proto, HTTP/2": overWeb(true, "application/grpc-web+proto", enveloped(wire)),
		"gRPC":                   overGRPC,
	} {
		t.Run(name, func(t *testing.T) {
			siege{200, 250 << 20}.during(t, &r, func() {
				var group sync.WaitGroup
				for range 4 {
					group.Go(func() {
						if said := attack(); !strings.Contains(said, "sessions") || !strings.Contains(said, "10000") {
							t.Errorf("it is answered with %.300q", said)
						}
					})
				}
				group.Wait()
			})
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// wireMessage is a message in wire form.
type wireMessage struct{ data []byte }

func (m *wireMessage) Wire() []byte      { return m.data }
func (m *wireMessage) TakeWire(b []byte) { m.data = b }

// wantViolation checks that an error is INVALID_ARGUMENT for a field.
func wantViolation(t *testing.T, err error, field string) {
	t.Helper()
	st := grpcstatus.Convert(err)
	for _, d := range st.Details() {
		if info, ok := d.(*errdetails.ErrorInfo); ok && st.Code() == codes.InvalidArgument && info.GetReason() == "INVALID_FIELD" &&
			info.GetMetadata()["field"] == field && info.GetMetadata()["max_items"] != "" {
			return
		}
	}
	t.Errorf("error %v with %v, want INVALID_FIELD for %q", err, st.Details(), field)
}

// Unary requests above a bound, and malformed ones, fail with a typed error also over gRPC, after the caller's rights
// were checked.
func TestUnaryRequestsAreChecked(t *testing.T) {
	t.Parallel()
	served := &sessions{}
	s := startTenanted(t, "", server.Config{}, served)
	call := func(token, method string, message []byte) error {
		conn := s.Dial(t, 0, grpc.WithPerRPCCredentials(bearer(token)))
		return conn.Invoke(t.Context(), method, &wireMessage{message}, &codec.Raw{}, grpc.ForceCodecV2(codec.New()))
	}
	labels := bytes.Repeat([]byte{0x12, 4, 0x0a, 0, 0x12, 0}, 65)
	update := "/copilot.bridge.v1.SessionService/UpdateLabels"
	wantViolation(t, call(tokenOf("acme"), update, labels), "set")
	if code := grpcstatus.Code(call(tokenOf("acme2"), update, labels)); code != codes.PermissionDenied {
		t.Errorf("an observer gets %v", code)
	}
	if code := grpcstatus.Code(call("nobody", update, labels)); code != codes.Unauthenticated {
		t.Errorf("a stranger gets %v", code)
	}
	if code := grpcstatus.Code(call(tokenOf("acme"), getOne, []byte{0x0a, 0xff})); code != codes.InvalidArgument {
		t.Errorf("a malformed request: %v", code)
	}
}

// What decoding adds counts while the request is in work.
func TestDecodedRequestsCount(t *testing.T) {
	t.Parallel()
	watching, done := make(chan struct{}, 10), make(chan struct{})
	s := startTenanted(t, "caller_request_bytes: 3000000", server.Config{}, &events{
		subscribe: func(ctx context.Context, _ frame.Sink) error {
			watching <- struct{}{}
			select {
			case <-done:
			case <-ctx.Done():
			}
			return nil
		}})
	defer close(done)
	conn, err := s.as("acme")
	if err != nil {
		t.Fatal(err)
	}
	request := &bridgev1.SubscribeRequest{}
	for range 10_000 { // 20 kB
		request.Sessions = append(request.Sessions, &bridgev1.SessionCursor{})
	}
	refused := error(nil)
	for i := 0; i < 10 && refused == nil; i++ {
		stream, err := bridgev1.NewEventServiceClient(conn).Subscribe(t.Context(), request)
		if err != nil {
			t.Fatal(err)
		}
		failed := make(chan error, 1)
		go func() { _, err := stream.Recv(); failed <- err }()
		select {
		case <-watching:
		case refused = <-failed:
		}
	}
	wantLimit(t, "a request of many elements", refused, "caller_request_bytes")
}
