package cli

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

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
