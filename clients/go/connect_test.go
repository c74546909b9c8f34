package copilot_test

import (
	"context"
	"errors"
	"flag"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// privateServerEnv makes the test's program serve like copilot-grpc; its value is the version.
const privateServerEnv = "COPILOT_GO_TEST_SERVER"

// servePrivately serves the fake on a unix socket until SIGTERM.
func servePrivately() {
	flags := flag.NewFlagSet("serve", flag.ExitOnError)
	listen := flags.String("listen", "", "")
	data := flags.String("data-dir", "", "")
	_ = flags.Parse(os.Args[2:])
	if os.Args[1] != "serve" || flags.NArg() != 1 {
		os.Exit(2)
	}
	if flags.Arg(0) == "broken" {
		println("the disk is full")
		os.Exit(3)
	}
	listener, err := net.Listen("unix", strings.TrimPrefix(*listen, "unix:"))
	if err == nil {
		err = os.WriteFile(flags.Arg(0), []byte(*data), 0o600)
	}
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer()
	bridgev1.RegisterRuntimeServiceServer(server, &fake{version: os.Getenv(privateServerEnv)})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, server.Stop)
	println("Try:")
	if err := server.Serve(listener); err != nil {
		panic(err)
	}
}

// serveInfo serves the fake on a listener until the test ends.
func serveInfo(t *testing.T, f *fake, network, address string, opts ...grpc.ServerOption) net.Listener {
	t.Helper()
	listener, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(opts...)
	bridgev1.RegisterRuntimeServiceServer(server, f)
	bridgev1.RegisterEventServiceServer(server, f)
	serving := make(chan error, 1)
	go func() { serving <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-serving; err != nil {
			t.Error(err)
		}
	})
	return listener
}

// version connects, and returns the server's version.
func version(t *testing.T, connect func() (*copilot.Client, error)) (string, error) {
	t.Helper()
	c, err := connect()
	if err != nil {
		return "", err
	}
	defer func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}()
	info, err := c.ServerInfo(testContext(t))
	return info.GetVersion(), err
}

// Connect finds the server of the environment before that of the default socket, and that before a private one.
func TestConnectFindsAServer(t *testing.T) {
	dir := t.TempDir()
	note := filepath.Join(dir, "note")
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Setenv("COPILOT_GRPC_BINARY", os.Args[0])
	connect := func() (*copilot.Client, error) {
		return copilot.Connect(testContext(t), copilot.WithServerArgs(note),
			copilot.WithServerEnv(privateServerEnv+"=private"))
	}
	if got, err := version(t, connect); err != nil || got != "private" {
		t.Fatalf("without a server: %q, %v", got, err)
	}
	data, err := os.ReadFile(note)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(string(data))); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of the private server: %v", err)
	}
	serveInfo(t, &fake{version: "default"}, "unix", filepath.Join(dir, "copilot-grpc.sock"))
	if got, err := version(t, connect); err != nil || got != "default" {
		t.Errorf("with the default socket: %q, %v", got, err)
	}
	listener := serveInfo(t, &fake{version: "named"}, "tcp", "127.0.0.1:0")
	t.Setenv(copilot.TargetEnv, listener.Addr().String())
	if got, err := version(t, connect); err != nil || got != "named" {
		t.Errorf("with a target: %q, %v", got, err)
	}
	private := func() (*copilot.Client, error) {
		return copilot.Launch(testContext(t), copilot.WithServerArgs(note),
			copilot.WithServerBinary(os.Args[0]), copilot.WithServerEnv(privateServerEnv+"=private"),
			copilot.WithCAFile("/no/such/file"))
	}
	if got, err := version(t, private); err != nil || got != "private" {
		t.Errorf("launched: %q, %v", got, err)
	}
}

func TestLaunchFails(t *testing.T) {
	t.Parallel()
	_, err := copilot.Launch(testContext(t), copilot.WithServerBinary("no-such-program"))
	if !errors.Is(err, copilot.ErrNoServer) || !strings.Contains(err.Error(), "no-such-program") {
		t.Errorf("without a binary: %v", err)
	}
	_, err = copilot.Launch(testContext(t), copilot.WithServerBinary(os.Args[0]),
		copilot.WithServerEnv(privateServerEnv+"=x"), copilot.WithServerArgs("broken"))
	if !errors.Is(err, copilot.ErrNoServer) || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("a server that ends: %v", err)
	}
	_, err = copilot.Launch(testContext(t), copilot.WithServerBinary(os.Args[0]),
		copilot.WithServerEnv(privateServerEnv+"=7.0.0"), copilot.WithServerArgs(filepath.Join(t.TempDir(), "note")))
	var incompatible *copilot.IncompatibleError
	if !errors.As(err, &incompatible) || incompatible.Version != "7.0.0" {
		t.Errorf("a server of another version: %v", err)
	}
}

func TestDialRefusesOtherServers(t *testing.T) {
	t.Parallel()
	dial := func(target string) error {
		c, err := copilot.Dial(testContext(t), target)
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	for version, want := range map[string]bool{
		"0.0.9": false, "0.1.0": true, "v0.9.1-rc.1": true, "1.0.0": false, "2.3": false, "dev": true, "(devel)": true,
	} {
		listener := serveInfo(t, &fake{version: version}, "tcp", "127.0.0.1:0")
		err := dial(listener.Addr().String())
		var incompatible *copilot.IncompatibleError
		if errors.As(err, &incompatible) == want || want && err != nil {
			t.Errorf("version %s: %v", version, err)
		}
	}

	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	web2 := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<p>Welcome</p>"))
	}))
	web2.Config.Protocols = new(http.Protocols)
	web2.Config.Protocols.SetUnencryptedHTTP2(true)
	web2.Start()
	defer web2.Close()
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	serving := make(chan error, 1)
	go func() { serving <- server.Serve(other) }()
	defer func() { server.Stop(); <-serving }()
	for name, address := range map[string]string{
		"HTTP/1.1": web.Listener.Addr().String(), "HTTP/2": web2.Listener.Addr().String(),
		"gRPC": other.Addr().String(),
	} {
		var incompatible *copilot.IncompatibleError
		err := dial(address)
		if !errors.As(err, &incompatible) || !strings.Contains(err.Error(), "is no copilot-grpc") {
			t.Errorf("a server of %s: %v", name, err)
		}
	}
	err = dial("unix:" + filepath.Join(t.TempDir(), "none"))
	if !errors.Is(err, copilot.ErrNoServer) || !strings.Contains(err.Error(), "copilot-grpc serve") {
		t.Errorf("no server: %v", err)
	}
}

func TestErrorsOfConnectingNameTheRemedy(t *testing.T) {
	t.Setenv(copilot.TokenEnv, "from-the-environment")
	f := &fake{version: "0.1.0"}
	wants := func(token string) grpc.ServerOption {
		return grpc.UnaryInterceptor(func(
			ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
		) (any, error) {
			md, _ := metadata.FromIncomingContext(ctx)
			if !slices.Equal(md.Get("authorization"), []string{"Bearer " + token}) {
				return nil, failure(codes.Unauthenticated, "UNAUTHENTICATED", "the token is unknown")
			}
			return next(ctx, req)
		})
	}
	accepting := serveInfo(t, f, "tcp", "127.0.0.1:0", wants("from-the-environment")).Addr().String()
	refusing := serveInfo(t, f, "tcp", "127.0.0.1:0", wants("another")).Addr().String()
	for name, tc := range map[string]struct {
		target string
		opts   []copilot.Option
		want   []string // nil: success
	}{
		"token of the environment": {accepting, nil, nil},
		"no token":                 {accepting, []copilot.Option{copilot.WithoutToken()}, []string{"the token is unknown"}},
		"a token after all": {accepting, []copilot.Option{copilot.WithoutToken(),
			copilot.WithToken("from-the-environment")}, nil},
		"option before it":        {accepting, []copilot.Option{copilot.WithToken("x")}, []string{"WithToken", "COPILOT_GRPC_TOKEN"}},
		"refused":                 {refusing, nil, []string{"WithToken", "COPILOT_GRPC_TOKEN", "the token is unknown"}},
		"nobody there":            {"unix:/no/such/socket", nil, []string{"COPILOT_GRPC_TARGET", "copilot-grpc serve"}},
		"http":                    {"http://" + accepting, nil, []string{"host:port", "unix:/path", "dns:///"}},
		"https":                   {"https://agents.example", nil, []string{"host:port", "unix:/path", "dns:///"}},
		"capitals":                {"HTTPS://agents.example", nil, []string{"host:port", "unix:/path", "dns:///"}},
		"grpc":                    {"grpc://agents.example:443", nil, []string{"host:port", "unix:/path", "dns:///"}},
		"nothing":                 {"", nil, []string{"host:port", "unix:/path", "dns:///"}},
		"TLS with a plain server": {accepting, []copilot.Option{copilot.WithServerName("x")}, []string{"WithTLS", "WithInsecure"}},
	} {
		_, err := version(t, func() (*copilot.Client, error) { return copilot.Dial(testContext(t), tc.target, tc.opts...) })
		if (err == nil) != (tc.want == nil) {
			t.Errorf("%s: err = %v", name, err)
			continue
		}
		for _, want := range tc.want {
			if !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: err = %v, want one line with %q", name, err, want)
			}
		}
		if errors.Is(err, copilot.ErrNoServer) != (name == "nobody there") {
			t.Errorf("%s: err = %v, ErrNoServer = %t", name, err, errors.Is(err, copilot.ErrNoServer))
		}
	}
}

// A token can expire while a program runs.
func TestRefusedCallsNameTheRemedy(t *testing.T) {
	t.Parallel()
	err := copilot.FromError(failure(codes.Unauthenticated, "UNAUTHENTICATED", "the token has expired"))
	want := "copilot: Unauthenticated UNAUTHENTICATED: the token has expired: set the bearer token with WithToken or " +
		"WithTokenSource, or in COPILOT_GRPC_TOKEN"
	var e *copilot.Error
	if err.Error() != want || !errors.As(err, &e) || e.Message != "the token has expired" {
		t.Errorf("err = %v, want %s", err, want)
	}
}

// Without a check the first call reports that no server is there.
func TestDialWithoutCheck(t *testing.T) {
	t.Parallel()
	c, err := copilot.Dial(t.Context(), "unix:/no/such/socket", copilot.WithoutCheck())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ServerInfo(t.Context()); status.Code(err) != codes.Unavailable {
		t.Errorf("the first call: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
