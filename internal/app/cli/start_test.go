package cli

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

// A server for people says how to reach it, with TLS by a context, and how to stop it.
func TestWelcome(t *testing.T) {
	t.Parallel()
	files := servertest.NewCA(t).Issue(t)
	policy := filepath.Join(t.TempDir(), "policy.yaml")
	text := "version: 1\nidentity: {certificates: true}\ntenants: {acme: {members: [{dns: a, role: owner}]}}\n"
	if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for want, flags := range map[string][]string{
		" context add NAME --target 127.0.0.1:": {"--listen", "127.0.0.1:0", "--tls-cert", files.CertFile, "--tls-key",
			files.KeyFile, "--tls-client-ca", files.CAFile, "--policy", policy},
		" chat --target unix:": {"--listen", "unix:" + socket(t)},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		t.Cleanup(cancel)
		p, _, _ := newProgram(nil, "")
		stops := &stopper{text: "Ctrl-C stops the server; its sessions stay.\n", stop: cancel}
		p.stderr = stops
		code := p.main(ctx, append([]string{"serve", "--cli", "/nowhere/copilot", "--data-dir", t.TempDir()}, flags...))
		if out := stops.String(); code != exitOK || !strings.Contains(out, want) ||
			strings.Contains(out, "context add") == strings.Contains(out, "grpcurl") {
			t.Errorf("code %d, printed\n%s, want %q", code, out, want)
		}
	}
}

// stopper is an output that calls stop when a text is written.
type stopper struct {
	text string
	stop func()

	mu  sync.Mutex
	out strings.Builder
}

// Write implements io.Writer.
func (s *stopper) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out.Write(b)
	if strings.Contains(s.out.String(), s.text) {
		s.stop()
	}
	return len(b), nil
}

// String is what was written.
func (s *stopper) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

// A replica that is asked to end while it waits for NATS ends without an error, as one that serves does.
func TestEndBeforeReady(t *testing.T) {
	t.Parallel()
	nats, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = nats.Close() }()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		if c, err := nats.Accept(); err == nil { // it says nothing
			defer func() { _ = c.Close() }()
			cancel()
			<-t.Context().Done()
		}
	}()
	files := servertest.NewCA(t).Issue(t)
	p, _, stderr := newProgram(nil, "")
	code := p.main(ctx, []string{
		"serve", "--listen", "unix:" + socket(t), "--cluster", "nats://" + nats.Addr().String(), "--cluster-unsafe",
		"--node-name", "n", "--node-listen", "127.0.0.1:7801", "--node-cert", files.CertFile,
		"--node-key", files.KeyFile, "--node-ca", files.CAFile,
	})
	if code != exitOK || !strings.Contains(stderr.String(), "asked to end before the server was ready") {
		t.Errorf("code %d: %s", code, stderr)
	}
}
