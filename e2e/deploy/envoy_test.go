package deploy

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/emptypb"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// envoyEnv names the executable of Envoy.
const envoyEnv = "COPILOT_GRPC_TEST_ENVOY"

// fronted is a server behind Envoy, with deploy/envoy/envoy.yaml.
type fronted struct {
	*proxied
	bin string
	// listen and web are the addresses of the server.
	listen, web string
	permissions atomic.Int32
}

// newFronted starts Envoy and the server, which waits for turns and readers for the grace time when it drains. changes
// are edits of Envoy's file.
func newFronted(
	t *testing.T, patience, grace time.Duration, changes map[string]string, rules ...harness.Rule,
) *fronted {
	t.Helper()
	f := &fronted{bin: harness.Installed(t, "envoy", envoyEnv)}
	st := harness.NewScripted(t, rules...)
	f.proxied = newProxied(t, patience)
	f.listen, f.web = harness.FreeAddress(t), harness.FreeAddress(t)
	provider, err := json.Marshal(map[string]any{
		"type": "openai", "wireApi": "completions", "baseUrl": st.Config().GetProvider().GetBaseUrl(), "apiKey": "k",
	})
	if err != nil {
		t.Fatal(err)
	}
	harness.WriteFiles(t, f.dir, map[string]string{
		"provider.json": string(provider), "replicas-ca.pem": f.certificate,
	})
	f.serve(st, "--listen", f.listen, "--web-listen", f.web, "--drain-grace", grace.String(),
		"--tls-cert", filepath.Join(f.dir, "cert.pem"), "--tls-key", filepath.Join(f.dir, "key.pem"),
		"--provider", "ours="+filepath.Join(f.dir, "provider.json"))
	f.open("envoy.yaml", func() string { return f.config(changes) }, f.bin, f.args()...)
	return f
}

func (f *fronted) args() []string {
	return []string{"--config-path", filepath.Join(f.dir, "envoy.yaml"), "--use-dynamic-base-id", "--concurrency", "1",
		"--log-level", "warn", "--drain-time-s", "1", "--drain-strategy", "immediate"}
}

// config is deploy/envoy/envoy.yaml with the addresses and files of the test, and a time that a test can wait for. Each
// text that it replaces has to be there.
func (f *fronted) config(changes map[string]string) string {
	f.T.Helper()
	text := harness.Edited(f.T, "../../deploy/envoy/envoy.yaml", map[string]string{
		"address: 0.0.0.0, port_value: 443}":                socket(f.address),
		"address: replica-a.example.com, port_value: 7443}": socket(f.listen),
		"address: replica-a.example.com, port_value: 7780}": socket(f.web),
		line("replica-b", 7443):                             "", line("replica-c", 7443): "",
		line("replica-b", 7780): "", line("replica-c", 7780): "",
		"/etc/envoy/":               f.dir + "/",
		"/run/envoy/":               f.dir + "/",
		"replicas.example.com":      "localhost",
		" interval: 2s":             " interval: 0.2s",
		"no_traffic_interval: 2s":   "no_traffic_interval: 0.2s",
		"TOKEN-OF-THE-HEALTH-CHECK": operatorToken,
		"stream_idle_timeout: 75s":  fmt.Sprintf("stream_idle_timeout: %gs", f.patience.Seconds()),
	})
	for from, to := range changes {
		if !strings.Contains(text, from) {
			f.T.Fatalf("%q is not in Envoy's file", from)
		}
		text = strings.ReplaceAll(text, from, to)
	}
	return text
}

// socket is the end of a socket address in Envoy's configuration.
func socket(address string) string {
	host, port, _ := net.SplitHostPort(address)
	return "address: " + host + ", port_value: " + port + "}"
}

// line is the line of a replica in Envoy's file.
func line(replica string, port int) string {
	return fmt.Sprintf("        - endpoint: {address: {socket_address: {address: %s.example.com, port_value: %d}}}\n",
		replica, port)
}

// restart ends Envoy and starts it again.
func (f *fronted) restart() {
	f.T.Helper()
	f.proxy.Stop(syscall.SIGTERM)
	f.proxy = harness.StartProxy(f.T, f.bin, f.args()...)
	f.T.Cleanup(func() { _ = f.remote.Close() }) // before the end of Envoy
}

// answers waits until the client has an answer through Envoy.
func (f *fronted) answers() {
	f.T.Helper()
	f.Eventually("an answer through Envoy", func() bool { _, err := f.remote.ServerInfo(f.Ctx); return err == nil })
}

// admin calls Envoy's admin socket.
func (f *fronted) admin(method, path string) string {
	f.T.Helper()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", filepath.Join(f.dir, "admin.sock"))
	}}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(f.Ctx, method, "http://envoy"+path, http.NoBody)
	if err != nil {
		f.T.Fatal(err)
	}
	resp, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		f.T.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		f.T.Fatalf("%s: %s, %v: %s", path, resp.Status, err, text)
	}
	return string(text)
}

// connections is how many connections Envoy has to the server.
func (f *fronted) connections() (n int) {
	f.T.Helper()
	stat := f.admin(http.MethodGet, "/stats?filter=^cluster.copilot_grpc.upstream_cx_active$")
	if _, err := fmt.Sscanf(stat, "cluster.copilot_grpc.upstream_cx_active: %d", &n); err != nil {
		f.T.Fatalf("%q: %v", stat, err)
	}
	return n
}

// session creates a session through Envoy.
func (f *fronted) session(tools ...copilot.Tool) *copilot.Session {
	f.T.Helper()
	config := f.Config()
	config.Provider = nil
	s, err := f.remote.CreateSession(f.Ctx, copilot.SessionOptions{
		Config: config, ProviderRef: "ours", Tools: tools,
		OnPermission: func(context.Context, *copilot.PermissionRequest) (*copilot.Decision, error) {
			f.permissions.Add(1)
			return copilot.ApproveOnce(), nil
		},
	})
	if err != nil {
		f.T.Fatal(err)
	}
	return s
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
	if err := beats(1, f.subscribe(s.ID(), time.Second).Recv); err != nil {
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

// Envoy ends in the middle of a turn and starts again: plain streams are cut, the turn goes on, and the library has its
// outcome. A caller that repeats its request has the same outcome.
func TestBehindEnvoyRestart(t *testing.T) {
	t.Parallel()
	f := newFronted(t, 75*time.Second, time.Second, nil,
		harness.OnUser("work", harness.Call("works", nil)), harness.OnResult("works", harness.Say("{{tool_result}}")))
	works := harness.NewHold()
	s := f.session(works.Tool("works", "worked"))
	check := f.follow(s.ID(), 1)
	plain := f.subscribe(s.ID(), time.Second)
	if err := beats(1, plain.Recv); err != nil {
		t.Fatal(err)
	}
	wait := f.GoTurn(s, "work", copilot.WithRequestID("once"))
	harness.Await(f.Scripted, works.Asked, "the tool's call")
	f.proxy.Stop(syscall.SIGTERM)
	if announced, err := ended(plain); announced || status.Code(err) != codes.Unavailable {
		t.Errorf("the plain stream ended with %v", err)
	}
	_, err := f.remote.Sessions().GetSession(f.Ctx, &bridgev1.GetSessionRequest{SessionId: s.ID()})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a call without Envoy: %v", err)
	}
	f.restart()
	f.answers()
	works.Release()
	if out := wait(); out.Text() != "worked" {
		t.Errorf("the turn ended with %v", out)
	}
	again, err := f.remote.Sessions().SendAndWait(f.Ctx, &bridgev1.SendAndWaitRequest{
		SessionId: s.ID(), RequestId: "once", Prompt: &bridgev1.Prompt{Text: "work"},
	})
	if err != nil || again.GetOutcome().GetText() != "worked" {
		t.Errorf("the repeated request: %v, %v", again, err)
	}
	check()
	if n := len(f.All(f.remote.Session(s.ID()), "user.message")); n != 1 || works.Calls.Load() != 1 {
		t.Errorf("%d prompts and %d calls of the tool", n, works.Calls.Load())
	}
}

// The server is stopped in the middle of a turn: Envoy lets answers to callbacks through while the server drains, so
// that the turn completes. The server is killed in the middle of the next turn: the library has its outcome, and so has
// a caller that repeats its call.
func TestBehindEnvoyServerRestart(t *testing.T) {
	t.Parallel()
	f := newFronted(t, 75*time.Second, time.Minute, nil,
		harness.OnUser("work", harness.Call("works", nil)), harness.OnResult("works", harness.Say("{{tool_result}}")))
	s := f.session(harness.Declared("works"))
	check := f.follow(s.ID(), 2)
	outcome := f.GoTurn(s, "work")
	callback := f.Waiting(s.ID()).GetCallbackId()
	if err := f.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	unhealthy := "copilot_grpc::" + f.listen + "::health_flags::/failed_active_hc"
	f.Eventually("Envoy finds the server unhealthy", func() bool {
		return strings.Contains(f.admin(http.MethodGet, "/clusters"), unhealthy)
	})
	_, err := f.remote.Sessions().Send(f.Ctx,
		&bridgev1.SendRequest{SessionId: s.ID(), Prompt: &bridgev1.Prompt{Text: "more"}})
	harness.WantError(t, err, codes.Unavailable, bridgev1.ErrorReason_ERROR_REASON_DRAINING)
	f.resolve(s, callback)
	if out := outcome(); out.Text() != "worked" {
		t.Errorf("the turn ended with %v", out)
	}
	f.Stop(syscall.SIGTERM)
	_, err = f.remote.Sessions().GetSession(f.Ctx, &bridgev1.GetSessionRequest{SessionId: s.ID()})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a call without the server: %v", err)
	}
	f.Start()
	f.answers()

	again := &bridgev1.SendAndWaitRequest{SessionId: s.ID(), RequestId: "again", Prompt: &bridgev1.Prompt{Text: "work"}}
	call := make(chan error, 1)
	go func() {
		_, err := f.remote.Sessions().SendAndWait(f.Ctx, again)
		call <- err
	}()
	f.Waiting(s.ID())
	outcome = f.GoTurn(s, "work", copilot.WithRequestID("again"))
	plain := f.subscribe(s.ID(), time.Second)
	if err := beats(1, plain.Recv); err != nil {
		t.Fatal(err)
	}
	f.Stop(syscall.SIGKILL)
	if err := <-call; status.Code(err) != codes.Unavailable {
		t.Errorf("the plain call ended with %v", err)
	}
	// The answer to a stream has begun, so that Envoy can only reset it.
	if announced, err := ended(plain); announced || status.Code(err) != codes.Internal {
		t.Errorf("the plain stream ended with %v", err)
	}
	f.Start()
	if out := outcome(); out.Status() != copilot.TurnRuntimeLost {
		t.Errorf("the turn of the killed server ended with %v", out.Err())
	}
	repeated, err := f.remote.Sessions().SendAndWait(f.Ctx, again)
	if err != nil || repeated.GetOutcome().GetStatus() != bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST {
		t.Errorf("the repeated call: %v, %v", repeated, err)
	}
	f.resolve(s, f.Waiting(s.ID()).GetCallbackId()) // the CLI asks again
	check()
}

// resolve answers a tool call through Envoy.
func (f *fronted) resolve(s *copilot.Session, callback string) {
	f.T.Helper()
	answer, _ := copilot.AnswerTool("worked")
	_, err := f.remote.Callbacks().Resolve(f.Ctx,
		&bridgev1.ResolveRequest{CallbackId: callback, SessionId: s.ID(), Answer: answer})
	if err != nil {
		f.T.Fatal(err)
	}
}

// Envoy and the server are drained and replaced, in both orders. A reader is told by the server, also through an Envoy
// that takes no connections any more, and misses nothing.
func TestBehindEnvoyDrain(t *testing.T) {
	t.Parallel()
	f := newFronted(t, 75*time.Second, time.Second, nil)
	s := f.session()
	check := f.follow(s.ID(), 3)
	f.Say(s, "before")
	for _, first := range []string{"Envoy", "the server"} {
		plain := f.subscribe(s.ID(), time.Second)
		if err := beats(1, plain.Recv); err != nil {
			t.Fatal(err)
		}
		if first == "Envoy" {
			f.drain()
			if err := beats(2, plain.Recv); err != nil {
				t.Errorf("the stream of a drained Envoy: %v", err)
			}
		}
		f.Stop(syscall.SIGTERM)
		if announced, err := ended(plain); !announced {
			t.Errorf("%s first: the stream ended with %v, and the server had not said that it would", first, err)
		}
		if first == "Envoy" {
			f.Start()
			f.restart()
		} else {
			f.drain()
			f.restart()
			f.Start()
		}
		f.answers()
		f.Say(s, "after "+first)
	}
	check()
}

// drain lets Envoy drain until it takes no connections.
func (f *fronted) drain() {
	f.T.Helper()
	f.admin(http.MethodPost, "/drain_listeners?graceful")
	f.Eventually("Envoy refuses connections", func() bool {
		conn, err := new(net.Dialer).DialContext(f.Ctx, "tcp", f.address)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
}

// Envoy repeats only unary methods without side effects when a server says UNAVAILABLE.
func TestBehindEnvoyRepeats(t *testing.T) {
	t.Parallel()
	f := &fronted{bin: harness.Installed(t, "envoy", envoyEnv), proxied: newProxied(t, time.Minute)}
	f.Daemon = &harness.Daemon{Scripted: harness.NewScripted(t)} // no process
	harness.WriteFiles(t, f.dir, map[string]string{"replicas-ca.pem": f.certificate})
	creds, err := credentials.NewServerTLSFromFile(filepath.Join(f.dir, "cert.pem"), filepath.Join(f.dir, "key.pem"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	arrived := make(chan string, 1000)
	server := grpc.NewServer(grpc.Creds(creds), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		if !strings.HasPrefix(method, "/grpc.health.") {
			arrived <- method
		}
		return status.Error(codes.Unavailable, "not now")
	}))
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	f.listen, f.web, f.address = l.Addr().String(), "127.0.0.1:1", harness.FreeAddress(t)
	harness.WriteFiles(t, f.dir, map[string]string{"envoy.yaml": f.config(nil)})
	harness.StartProxy(t, f.bin, f.args()...)
	conn, err := grpc.NewClient(f.address, grpc.WithDisableRetry(), grpc.WithTransportCredentials(
		credentials.NewTLS(&tls.Config{RootCAs: f.roots, ServerName: "localhost"})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	for _, m := range unaryMethods() {
		path := fmt.Sprintf("/%s/%s", m.Parent().FullName(), m.Name())
		err := conn.Invoke(f.Ctx, path, new(emptypb.Empty), new(emptypb.Empty), grpc.WaitForReady(true))
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "not now") {
			t.Fatalf("%s: %v", path, err)
		}
		want := 1
		if m.Options().(*descriptorpb.MethodOptions).GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS {
			want = 3
		}
		if n := len(arrived); n != want {
			t.Errorf("the server got %s %d times, want %d", path, n, want)
		}
		for len(arrived) > 0 {
			<-arrived
		}
	}
}

// unaryMethods are those of copilot.bridge.v1.
func unaryMethods() (methods []protoreflect.MethodDescriptor) {
	protoregistry.GlobalFiles.RangeFilesByPackage("copilot.bridge.v1", func(file protoreflect.FileDescriptor) bool {
		for i := range file.Services().Len() {
			all := file.Services().Get(i).Methods()
			for j := range all.Len() {
				if m := all.Get(j); !m.IsStreamingClient() && !m.IsStreamingServer() {
					methods = append(methods, m)
				}
			}
		}
		return true
	})
	return methods
}
