package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
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
	f := prepared(t, patience)
	f.start(harness.NewScripted(t, rules...), grace, changes)
	return f
}

// prepared writes the files that the server and Envoy need.
func prepared(t *testing.T, patience time.Duration) *fronted {
	t.Helper()
	f := &fronted{bin: harness.Installed(t, "envoy", envoyEnv), proxied: newProxied(t, patience)}
	f.listen, f.web = harness.FreeAddress(t), harness.FreeAddress(t)
	harness.WriteFiles(t, f.dir, map[string]string{"replicas-ca.pem": f.certificate})
	return f
}

// start starts the server with more flags, and Envoy with edits of its file.
func (f *fronted) start(st *harness.Scripted, grace time.Duration, changes map[string]string, flags ...string) {
	t := st.T
	t.Helper()
	provider, err := json.Marshal(map[string]any{
		"type": "openai", "wireApi": "completions", "baseUrl": st.Config().GetProvider().GetBaseUrl(), "apiKey": "k",
	})
	if err != nil {
		t.Fatal(err)
	}
	harness.WriteFiles(t, f.dir, map[string]string{"provider.json": string(provider)})
	f.serve(st, append(flags, "--listen", f.listen, "--web-listen", f.web, "--drain-grace", grace.String(),
		"--tls-cert", filepath.Join(f.dir, "cert.pem"), "--tls-key", filepath.Join(f.dir, "key.pem"),
		"--provider", "ours="+filepath.Join(f.dir, "provider.json"))...)
	f.open("envoy.yaml", func() string { return f.config(changes) }, f.bin, f.args()...)
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
		"/etc/envoy/":               f.dir + "/",
		"/run/envoy/":               f.dir + "/",
		"replicas.example.com":      "localhost",
		" interval: 2s":             " interval: 0.2s",
		"no_traffic_interval: 2s":   "no_traffic_interval: 0.2s",
		"TOKEN-OF-THE-HEALTH-CHECK": operatorToken,
		"stream_idle_timeout: 75s":  fmt.Sprintf("stream_idle_timeout: %gs", f.patience.Seconds()),
	})
	text = otherReplicas.ReplaceAllString(text, "")
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

// otherReplicas are the lines of the replicas that one server does not have.
var otherReplicas = regexp.MustCompile(`(?m)^.*replica-[bc]\.example\.com.*\n`)

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
