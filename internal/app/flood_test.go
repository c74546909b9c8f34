//go:build unix

package app

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const (
	// floodFiles is what the flooded server may have open, floodConns how many connections its
	// observer makes.
	floodFiles, floodConns = 1500, 1600
	// floodEnv has the folder of the flooded server, which is a separate process.
	floodEnv = "COPILOT_GRPC_TEST_FLOOD"
)

// floodPolicy lets the observer have as many connections as there are.
const floodPolicy = `
version: 1
identity: {tokens: tokens.txt}
tenants:
  acme: {members: [{token: %s, role: observer}], limits: {connections: 0, caller_connections: 0}}
  rival: {members: [{token: rival, role: owner}]}
`

// TestFloodedServer is the server of TestFlood, in its process.
func TestFloodedServer(t *testing.T) { //nolint:paralleltest // a separate process
	dir := os.Getenv(floodEnv)
	if dir == "" {
		t.Skip("it is the server of TestFlood")
	}
	limit := syscall.Rlimit{Cur: floodFiles, Max: floodFiles}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	ts := startTenants(t, func(c *Config) {
		c.Policy, c.TLSCert, c.TLSKey = filepath.Join(dir, "policy.yaml"), filepath.Join(dir,
			"cert"), filepath.Join(dir, "key")
		c.AdminListen = "unix:" + filepath.Join(dir, "admin")
	})
	fmt.Println("\nserves " + ts.Target())
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// flooded starts that process.
func flooded(t *testing.T, dir string) (target string) {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0], "-test.run=^TestFloodedServer$")
	cmd.Env = append(os.Environ(), floodEnv+"="+dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server ends with %v", err)
		}
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if target, ok := strings.CutPrefix(lines.Text(), "serves "); ok {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return target
		}
	}
	t.Fatal("the server does not start")
	return ""
}

// selfSigned writes a certificate for localhost, and returns what trusts it.
func selfSigned(t *testing.T, dir string) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	write(t, filepath.Join(dir, "cert"), string(cert))
	write(t, filepath.Join(dir, "key"), string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(cert)
	return &tls.Config{RootCAs: pool, NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS13}
}

// knock makes a connection and begins a call on it as a caller, whose request does not come.
func knock(target, name string, c *tls.Config) (net.Conn, error) {
	d := tls.Dialer{Config: c}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	conn, err := d.DialContext(ctx, "tcp", target)
	if err != nil {
		return nil, err
	}
	var out, block bytes.Buffer
	out.WriteString(http2.ClientPreface)
	f, e := http2.NewFramer(&out, nil), hpack.NewEncoder(&block)
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", "https"}, {":path", "/copilot.bridge.v1.RuntimeService/GetServerInfo"},
		{":authority", target}, {"content-type", "application/grpc"}, {"te", "trailers"},
		{"authorization", "Bearer " + secretOf(name)},
	} {
		_ = e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	err = errors.Join(f.WriteSettings(),
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true}))
	if err == nil {
		_, err = conn.Write(out.Bytes())
	}
	return conn, err
}

// answerPings does what keeps a connection, until that is closed.
func answerPings(conn net.Conn) {
	for f := http2.NewFramer(conn, conn); ; {
		frame, err := f.ReadFrame()
		if p, ok := frame.(*http2.PingFrame); ok && err == nil && !p.IsAck() {
			err = f.WritePing(true, p.Data)
		}
		if err != nil {
			return
		}
	}
}

// An observer opens more connections than the server may have files open. Other tenants still call and use the disk,
// the admin listener answers, and a policy that withdraws the observer's rights is read and closes its connections.
func TestFlood(t *testing.T) {
	t.Parallel()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur < 2*floodConns {
		t.Skipf("the test itself may not have enough files open: %d, %v", limit.Cur, err)
	}
	path := writePolicy(t, fmt.Sprintf(floodPolicy, "acme"), "acme", "other", "rival")
	dir := filepath.Dir(path)
	trust := selfSigned(t, dir)
	target := flooded(t, dir)
	var open atomic.Int64
	var readers sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	t.Cleanup(func() {
		for _, c := range conns {
			_ = c.Close()
		}
		readers.Wait()
	})
	var flood sync.WaitGroup
	for range 8 {
		flood.Go(func() {
			for range floodConns / 8 {
				conn, err := knock(target, "acme", trust)
				if err != nil {
					continue // it is turned away
				}
				mu.Lock()
				conns = append(conns, conn)
				mu.Unlock()
				open.Add(1)
				readers.Go(func() {
					answerPings(conn)
					open.Add(-1)
				})
			}
		})
	}
	flood.Wait()
	t.Logf("%d of %d connections are open", open.Load(), floodConns)
	if n := open.Load(); n < floodFiles/2 {
		t.Errorf("only %d connections are open: the server is not flooded", n)
	}
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(credentials.NewTLS(trust.Clone())),
		grpc.WithPerRPCCredentials(bearer(secretOf("rival"))))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	if _, err := bridgev1.NewSessionServiceClient(conn).CreateSession(ctx,
		&bridgev1.CreateSessionRequest{SessionId: "s"}); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	admin := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, "admin"))
		}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost/readyz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := admin.Do(request)
	if err != nil {
		t.Errorf("the admin listener: %v", err)
	} else if _ = answer.Body.Close(); answer.StatusCode != http.StatusOK {
		t.Errorf("the admin listener says %s", answer.Status)
	}
	write(t, path, fmt.Sprintf(floodPolicy, "other"))
	for open.Load() > 0 {
		if ctx.Err() != nil {
			t.Fatalf("%d connections of the observer are open after its rights have ended", open.Load())
		}
		time.Sleep(10 * time.Millisecond)
	}
	if _, err := bridgev1.NewSessionServiceClient(conn).GetSession(ctx,
		&bridgev1.GetSessionRequest{SessionId: "s"}); err != nil {
		t.Errorf("another tenant afterwards: %v", err)
	}
}
