//go:build xds

// Package mesh tests a server in a mesh without proxies: a control plane configures it, and its clients, by xDS.
package mesh

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/controlplane"
	"github.com/copilot-grpc/copilot-grpc/server/forward"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

func TestMain(m *testing.M) { harness.Main(m) }

// rules is a policy that knows the clients' certificate.
const rules = "version: 1\nidentity: {certificates: true}\ntenants: {host: {members: [{dns: localhost, role: admin}]}}\n"

// build builds the program with xDS.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "copilot-grpc")
	out, err := exec.Command("go", "build", "-tags", "xds,grpcnotrace", "-o", program, "../../cmd/copilot-grpc").
		CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return program
}

// mesh is a server, the files of its clients, and the place of the control plane.
type mesh struct {
	*harness.Daemon
	plane   string // address of the control plane
	address string // of the server
	admin   *http.Client
	env     string
	files   forward.TLS
}

// start starts a server without a control plane.
func start(t *testing.T) *mesh {
	t.Helper()
	root, err := os.MkdirTemp("", "mesh") // short: it is in a socket's path
	if err != nil {
		t.Fatal(err)
	}
	m := &mesh{plane: harness.FreeAddress(t), address: harness.FreeAddress(t), files: servertest.NewCA(t).IssueLocal(t)}
	dir, provider := filepath.Split(filepath.Dir(m.files.CertFile))
	m.env = "GRPC_XDS_BOOTSTRAP_CONFIG=" + controlplane.Bootstrap(m.plane, dir, provider)
	file := filepath.Join(root, "policy.yaml")
	if err := os.WriteFile(file, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	admin := filepath.Join(root, "a")
	m.admin = &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", admin)
		}}}
	m.Daemon = harness.StartDaemon(&harness.Daemon{Scripted: harness.NewScripted(t), Root: root, Path: build(t),
		Env: []string{m.env}, Flags: []string{"--listen", m.address, "--xds", "--policy", file, "--tls-cert",
			m.files.CertFile, "--tls-key", m.files.KeyFile, "--tls-client-ca", m.files.CAFile, "--admin-listen",
			"unix:" + admin, "--offline-model", "default"}})
	return m
}

// control starts the control plane.
func (m *mesh) control() *controlplane.Server {
	m.T.Helper()
	l, err := net.Listen("tcp", m.plane)
	if err != nil {
		m.T.Fatal(err)
	}
	plane := controlplane.Serve(m.T, l)
	provider := filepath.Base(filepath.Dir(m.files.CertFile))
	plane.Set(controlplane.Listener(m.address, provider), controlplane.Cluster("c", provider, "localhost"),
		controlplane.Endpoints("c", controlplane.Endpoint{Address: m.address}),
		controlplane.Target("copilot", controlplane.ToCluster("/", "c")))
	return plane
}

// ready waits until /readyz has a status and a text.
func (m *mesh) ready(status int, text string) {
	m.T.Helper()
	tick := time.NewTicker(20 * time.Millisecond) // there is no event to wait for
	defer tick.Stop()
	var body []byte
	for ; m.Ctx.Err() == nil; <-tick.C {
		reply, err := m.admin.Get("http://admin/readyz")
		if err != nil {
			m.T.Fatal(err)
		}
		if body, err = io.ReadAll(reply.Body); err != nil {
			m.T.Fatal(err)
		}
		_ = reply.Body.Close() // it was read
		if reply.StatusCode == status && strings.Contains(string(body), text) {
			return
		}
	}
	m.T.Fatalf("/readyz is not %d with %q: %s", status, text, body)
}

// A server whose control plane is away takes no calls and says so. A turn goes through the mesh once the control plane
// is there, and calls go on when it has gone.
func TestProxyless(t *testing.T) {
	t.Parallel()
	m := start(t)
	m.ready(http.StatusServiceUnavailable, m.address+" takes no calls: ")
	if conn, err := net.Dial("tcp", m.address); err == nil {
		if n, err := conn.Read(make([]byte, 1)); err == nil {
			t.Errorf("a connection without a control plane has received %d bytes", n)
		}
		_ = conn.Close()
	}
	plane := m.control()
	m.ready(http.StatusOK, "")
	run := exec.CommandContext(t.Context(), m.Path, "run", "Hello", "--target", "xds:///copilot")
	run.Env = append(os.Environ(), m.env)
	var stderr bytes.Buffer
	run.Stderr = &stderr
	out, err := run.Output()
	if err != nil || !strings.Contains(string(out), "You said: Hello") {
		t.Errorf("a turn through the mesh: %v, %s%s", err, out, &stderr)
	}
	plane.Stop()
	c, err := copilot.Dial(m.Ctx, m.address, copilot.WithCAFile(m.files.CAFile), copilot.WithServerName("localhost"),
		copilot.WithClientCertificate(m.files.CertFile, m.files.KeyFile))
	if err != nil {
		t.Fatalf("without the control plane that has gone: %v", err)
	}
	_ = c.Close()
	m.Stop(syscall.SIGTERM)
	m.unknown()
	log := m.Log.String()
	for _, line := range []string{`msg="waiting for the control plane" address=` + m.address,
		`msg="no calls are taken: the control plane has not configured the address" address=` + m.address,
		`msg="serving as the control plane says" address=` + m.address} {
		if !strings.Contains(log, line) {
			t.Errorf("the log lacks: %s\n%s", line, log)
		}
	}
}

// unknown checks that a server does not start without a bootstrap file, and that doctor says so.
func (m *mesh) unknown() {
	m.T.Helper()
	ctx, cancel := context.WithTimeout(m.Ctx, time.Minute)
	defer cancel()
	flags := append([]string{"serve", "--data-dir", m.T.TempDir(), "--no-login"}, m.Flags...)
	out, err := exec.CommandContext(ctx, m.Path, flags...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "GRPC_XDS_BOOTSTRAP") {
		m.T.Errorf("serve without a bootstrap file: %v\n%s", err, out)
	}
	flags[0] = "doctor"
	for _, test := range []struct{ env, want string }{
		{"", "MISSING  control plane: "}, {m.env, "ok       control plane: "},
	} {
		doctor := exec.CommandContext(ctx, m.Path, flags...)
		doctor.Env = append(os.Environ(), test.env)
		if out, _ = doctor.CombinedOutput(); !strings.Contains(string(out), test.want) {
			m.T.Errorf("doctor with %q does not say %q:\n%s", test.env, test.want, out)
		}
	}
}
