package deploy

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// haproxyEnv names the executable of HAProxy.
const haproxyEnv = "COPILOT_GRPC_TEST_HAPROXY"

// newHAProxy starts a server behind HAProxy, with deploy/haproxy.cfg.
func newHAProxy(t *testing.T, patience time.Duration, rules ...harness.Rule) *proxied {
	t.Helper()
	bin := harness.Installed(t, "haproxy", haproxyEnv)
	st := harness.NewScripted(t, rules...)
	p := newProxied(t, patience)
	upstream := harness.FreeAddress(t)
	harness.WriteFiles(t, p.dir, map[string]string{"bridge.pem": p.certificate + p.key})
	p.serve(st, "--listen", upstream, "--drain-grace", "1s")
	p.open("haproxy.cfg", func() string {
		return harness.Edited(t, "../../deploy/haproxy.cfg", map[string]string{
			"bind 0.0.0.0:443 ":  "bind " + p.address + " ",
			"127.0.0.1:7443 ":    upstream + " ",
			"/etc/haproxy/":      p.dir + "/",
			"timeout client 75s": fmt.Sprintf("timeout client %ds", int(patience.Seconds())),
			"timeout server 75s": fmt.Sprintf("timeout server %ds", int(patience.Seconds())),
		})
	}, bin, "-db", "-f", filepath.Join(p.dir, "haproxy.cfg"))
	return p
}

func TestHAProxyIdleStreams(t *testing.T) {
	t.Parallel()
	newHAProxy(t, 5*time.Second, harness.OnUser("hello", harness.Say("hi"))).testIdleStreams()
}

// When the server behind HAProxy is replaced, readers get a GoAway, come back through HAProxy, and miss nothing.
func TestHAProxyDrain(t *testing.T) {
	t.Parallel()
	newHAProxy(t, 75*time.Second, harness.OnUser("one", harness.Say("1")), harness.OnUser("two", harness.Say("2"))).testDrain()
}

// doctor finds nothing broken with deploy/haproxy.cfg but streams that are silent for longer than HAProxy lets them be.
// Metadata may be as large as the server admits.
func TestHAProxyDoctor(t *testing.T) {
	t.Parallel()
	p := newHAProxy(t, 3*time.Second)
	p.testDoctor()
	ctx := metadata.AppendToOutgoingContext(p.Ctx, "x-large", strings.Repeat("x", 60<<10))
	if _, err := p.remote.Runtimes().Ping(ctx, &bridgev1.PingRequest{}); err != nil {
		t.Errorf("a call with 60 KiB of metadata: %v", err)
	}
}

// A stranger has a connection to the server of its own, which the server closes when it has sent too much. On the connection of
// a caller, the server would refuse only the call.
func TestHAProxyStrangers(t *testing.T) {
	t.Parallel()
	p := newHAProxy(t, time.Minute)
	ctx, cancel := context.WithTimeout(p.Ctx, 20*time.Second)
	defer cancel()
	if _, err := p.remote.Runtimes().Ping(ctx, &bridgev1.PingRequest{}); err != nil {
		t.Fatal(err)
	}
	body, sent := io.Pipe()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+p.address+bridgev1.RuntimeService_Ping_FullMethodName, body)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/grpc")
	go func() { _, _ = sent.Write(append([]byte{0, 0, 0xff, 0xff, 0xff}, make([]byte, 900_000)...)) }() // a part of 16 MiB
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: p.roots, ServerName: "localhost"}, Protocols: &http.Protocols{}}
	transport.Protocols.SetHTTP2(true)
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err == nil {
		_ = response.Body.Close()
	}
	_ = body.Close()
	if ctx.Err() != nil || err == nil && response.Header.Get("Grpc-Status") != "" {
		t.Errorf("the stranger's call came on the connection of a caller: %v, %v", response, err)
	}
}

// Open streams outlast a soft stop of HAProxy. A server that is killed ends them without a reason.
func TestHAProxyStops(t *testing.T) {
	t.Parallel()
	p := newHAProxy(t, time.Minute)
	stream := p.Subscribe(p.remote, p.made(), time.Second)
	if err := beats(1, stream.Recv); err != nil {
		t.Fatal(err)
	}
	p.proxy.Signal(syscall.SIGUSR1)
	p.awaitClosed()
	if err := beats(2, stream.Recv); err != nil {
		t.Fatalf("after the soft stop: %v", err)
	}
	p.Stop(syscall.SIGKILL)
	if announced, err := ended(stream); announced || status.Code(err) != codes.Internal {
		t.Errorf("the stream of a killed server ended with %v", err)
	}
}
