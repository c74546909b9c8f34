package deploy

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// connections is how many connections Envoy has to the server.
func (f *fronted) connections() (n int) {
	f.T.Helper()
	stat := f.admin(http.MethodGet, "/stats?filter=^cluster.copilot_grpc.upstream_cx_active$")
	if _, err := fmt.Sscanf(stat, "cluster.copilot_grpc.upstream_cx_active: %d", &n); err != nil {
		f.T.Fatalf("%q: %v", stat, err)
	}
	return n
}

// Calls and streams of gRPC work as without Envoy, and Envoy bounds the calls of a connection.
func TestBehindEnvoyCalls(t *testing.T) {
	t.Parallel()
	const burst = 300
	f := newFronted(t, 75*time.Second, time.Second,
		map[string]string{"max_tokens: 2000, tokens_per_fill: 1000, fill_interval: 1s": fmt.Sprintf(
			"max_tokens: %d, tokens_per_fill: 1, fill_interval: 3600s", burst)},
		harness.OnUser("work", harness.Call("lookup", nil)),
		harness.OnResult("lookup", harness.Say("It said {{tool_result}}")))
	for _, opt := range []copilot.Option{copilot.WithoutToken(), copilot.WithToken("a-token-of-nobody-here")} {
		if _, err := copilot.Dial(f.Ctx, f.address, opt, f.tls()); status.Code(err) != codes.Unauthenticated {
			t.Errorf("a caller without a valid token: %v", err)
		}
	}

	run, err := f.remote.Sessions().Run(f.Ctx, &bridgev1.RunRequest{
		Session: &bridgev1.RunRequest_Create{Create: &bridgev1.CreateSessionRequest{Config: f.Config()}},
		Prompt:  &bridgev1.Prompt{Text: "hello"},
	})
	if err != nil {
		t.Fatal(err)
	}
	text := ""
	for {
		r, err := run.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if o := r.GetOutcome(); o != nil {
			text = o.GetText()
		}
	}
	if text != "You said: hello" {
		t.Errorf("Run ended with %q", text)
	}

	s := f.session(copilot.NewTool("lookup", "Looks up", func(context.Context, struct{}) (string, error) {
		return "enough", nil
	}))
	if out := f.Say(s, "work"); out.Text() != "It said enough" || f.permissions.Load() != 1 {
		t.Errorf("the turn over Attach: %q after %d permissions", out.Text(), f.permissions.Load())
	}
	if err := beats(1, f.Subscribe(f.remote, s.ID(), time.Second).Recv); err != nil {
		t.Error(err)
	}

	// The server answers when the caller has ended its half.
	send, err := f.remote.Sessions().SendStream(f.Ctx)
	if err == nil {
		err = send.Send(&bridgev1.SendStreamRequest{Piece: &bridgev1.SendStreamRequest_Request{Request: &bridgev1.SendRequest{
			SessionId: s.ID(), Prompt: &bridgev1.Prompt{Text: "streamed"},
		}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	if r, err := send.CloseAndRecv(); err != nil || r.GetMessageId() == "" {
		t.Errorf("SendStream: %v, %v", r, err)
	}
	f.Eventually("the streamed prompt at the model", func() bool {
		last := f.LastModelRequest()
		return last.UserText() == "streamed"
	})

	before := f.connections()
	other, err := copilot.Dial(f.Ctx, f.address, copilot.WithToken(operatorToken), f.tls())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close() //nolint:errcheck // nothing depends on it
	if n := f.connections(); n != before+1 {
		t.Errorf("Envoy has %d connections to the server, and had %d before another caller", n, before)
	}
	for n := 0; err == nil && n < burst; n++ {
		_, err = other.Runtimes().Ping(f.Ctx, &bridgev1.PingRequest{})
	}
	if status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%d calls of one connection: %v", burst, err)
	}
	if _, err := f.remote.ServerInfo(f.Ctx); err != nil {
		t.Errorf("another connection: %v", err)
	}
}

// browser is a client without gRPC, by HTTP/1.1 or by HTTP/2.
func (f *fronted) browser(major int) *http.Client {
	f.T.Helper()
	var protocols http.Protocols
	protocols.SetHTTP1(major == 1)
	protocols.SetHTTP2(major == 2)
	tr := &http.Transport{Protocols: &protocols, TLSClientConfig: &tls.Config{RootCAs: f.roots}}
	f.T.Cleanup(tr.CloseIdleConnections)
	jar, err := cookiejar.New(nil)
	if err != nil {
		f.T.Fatal(err)
	}
	return &http.Client{Transport: tr, Jar: jar}
}

// request sends JSON through Envoy; an empty body is a GET request.
func (f *fronted) request(c *http.Client, path, body string, header ...string) *http.Response {
	f.T.Helper()
	method := http.MethodPost
	if body == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(f.Ctx, method, "https://"+f.address+path, strings.NewReader(body))
	if err != nil {
		f.T.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		f.T.Fatal(err)
	}
	f.T.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// bearer is the header of a caller that is not a browser.
var bearer = []string{"Authorization", "Bearer " + operatorToken}

// The console, a login, calls and a stream of Connect reach the server by HTTP/1.1 and HTTP/2.
func TestBehindEnvoyWeb(t *testing.T) {
	t.Parallel()
	f := newFronted(t, 75*time.Second, time.Second, nil)
	const info = "/copilot.bridge.v1.RuntimeService/GetServerInfo"
	config := f.Config()
	config.Provider = nil
	run, err := protojson.Marshal(&bridgev1.RunRequest{
		Session: &bridgev1.RunRequest_Create{Create: &bridgev1.CreateSessionRequest{Config: config, ProviderRef: "ours"}},
		Prompt:  &bridgev1.Prompt{Text: "hello"},
	})
	if err != nil {
		t.Fatal(err)
	}
	own, foreign := []string{"Origin", "https://" + f.address}, []string{"Origin", "https://elsewhere.example"}
	for _, major := range []int{1, 2} {
		c := f.browser(major)
		for _, call := range []struct {
			path, body string
			header     []string
			status     int
			want       string
		}{
			{"/", "", nil, http.StatusOK, "<!doctype html>"},
			{info, "{}", nil, http.StatusUnauthorized, "unauthenticated"},
			{info, "{}", bearer, http.StatusOK, `"protocolVersion":3`},
			{"/copilot.bridge.v1.SessionService/Run", string(run), bearer, http.StatusOK, `"You said: hello"`},
			{"/auth/token", `{"token": "` + operatorToken + `"}`, foreign, http.StatusForbidden, ""},
			{"/auth/token", `{"token": "` + operatorToken + `"}`, own, http.StatusOK, `"host"`},
			{info, "{}", own, http.StatusOK, `"protocolVersion":3`}, // by the cookie
		} {
			resp := f.request(c, call.path, call.body, call.header...)
			text, err := io.ReadAll(resp.Body)
			found := strings.Contains(strings.ReplaceAll(strings.ToLower(string(text)), ": ", ":"),
				strings.ReplaceAll(strings.ToLower(call.want), ": ", ":"))
			if err != nil || resp.StatusCode != call.status || resp.ProtoMajor != major || !found {
				t.Errorf("%s by HTTP/%d: %s %s, %v\n%s", call.path, major, resp.Proto, resp.Status, err, text)
			}
		}
	}
}

// Heartbeats keep streams open, of gRPC and of browsers.
func TestBehindEnvoyIdleStreams(t *testing.T) {
	t.Parallel()
	f := newFronted(t, 3*time.Second, time.Second, nil, harness.OnUser("hello", harness.Say("hi")))
	lines := bufio.NewScanner(f.request(f.browser(1), "/copilot.bridge.v1.CallbackService/WatchPending",
		`{"heartbeatInterval": "1s"}`, bearer...).Body)
	watched := make(chan error, 1)
	go func() {
		for n := 0; n < 5; {
			if !lines.Scan() {
				watched <- fmt.Errorf("the browser's stream ended after %d heartbeats: %w", n, lines.Err())
				return
			}
			if strings.Contains(lines.Text(), "heartbeat") {
				n++
			}
		}
		watched <- nil
	}()
	f.testIdleStreams()
	if err := <-watched; err != nil {
		t.Error(err)
	}
}
