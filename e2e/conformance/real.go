package conformance

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/freeport"
)

// token is the bearer token of all servers over TCP.
const token = "conformance-token-1"

// startTimeout bounds the start of the server with its CLI.
const startTimeout = 90 * time.Second

// realServer is bin/copilot-grpc with a CLI, in a process of its own.
type realServer struct {
	folder  string
	command []string
	process *exec.Cmd // nil while it is killed
	log     *tail
	socket  string
	tcp     string
	web     string
	// controls are what a case may do with a server of its own.
	controls map[string]func(context.Context) error
}

// startReal starts the server and waits until it listens.
func startReal(ctx context.Context, binary, cli, folder string, c *certificate) (*realServer, error) {
	s := &realServer{folder: folder, socket: filepath.Join(folder, "s"), log: &tail{}}
	for _, address := range []*string{&s.tcp, &s.web} {
		free, err := freeport.Address()
		if err != nil {
			return nil, err
		}
		*address = free
	}
	for _, sub := range []string{"home", "user", "work", "data"} {
		if err := os.MkdirAll(filepath.Join(folder, sub), 0o700); err != nil {
			return nil, err
		}
	}
	s.controls = map[string]func(context.Context) error{
		"kill server": s.kill, "start server": s.start, "kill runtime": s.killRuntimes,
	}
	s.command = []string{binary, "serve", "--listen", "unix:" + s.socket, "--listen", s.tcp, "--tls-cert", c.certFile,
		"--tls-key", c.keyFile, "--token", token, "--cli", cli, "--no-login", "--home", filepath.Join(folder, "home"),
		"--user-home", filepath.Join(folder, "user"), "--work-dir", filepath.Join(folder, "work"),
		"--data-dir", filepath.Join(folder, "data"), "--web-listen", s.web, "--raw"}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// start starts the server's process, with the data that a killed one left.
func (s *realServer) start(ctx context.Context) error {
	s.process = exec.Command(s.command[0], s.command[1:]...)
	s.process.Stdout, s.process.Stderr = s.log, s.log
	if err := s.process.Start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", s.socket)
		if err == nil {
			return conn.Close()
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the server does not listen: %w\n%s", err, s.log), s.close())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// kill kills the server's process.
func (s *realServer) kill(context.Context) error {
	err := s.process.Process.Kill()
	_ = s.process.Wait() // it was killed
	s.process = nil
	return err
}

// killRuntimes kills the server's CLI processes when they have recorded the prompts: a CLI that ends before has lost them.
func (s *realServer) killRuntimes(ctx context.Context) error {
	conn, err := s.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := s.recorded(ctx, bridgev1.NewSessionServiceClient(conn)); err != nil {
		return err
	}
	list, err := bridgev1.NewRuntimeServiceClient(conn).ListRuntimes(ctx, &bridgev1.ListRuntimesRequest{})
	if err != nil {
		return err
	}
	for _, r := range list.GetRuntimes() {
		if r.GetState() == bridgev1.RuntimeState_RUNTIME_STATE_READY {
			err = errors.Join(err, syscall.Kill(int(r.GetPid()), syscall.SIGKILL))
		}
	}
	return err
}

// recorded waits until the CLI's records have all prompts of the sessions.
func (s *realServer) recorded(ctx context.Context, sessions bridgev1.SessionServiceClient) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	list, err := sessions.ListSessions(ctx, &bridgev1.ListSessionsRequest{})
	if err != nil {
		return err
	}
	for _, one := range list.GetSessions() {
		id := one.GetSessionId()
		page, err := sessions.ListEvents(ctx, &bridgev1.ListEventsRequest{SessionId: id,
			Filter: &bridgev1.EventFilter{Types: []string{"user.message"}}})
		if status.Code(err) == codes.NotFound {
			continue // it is disconnected
		}
		if err != nil {
			return err
		}
		for file := filepath.Join(s.folder, "home", "session-state", id, "events.jsonl"); ; {
			text, err := os.ReadFile(file)
			if err == nil && bytes.Count(text, []byte(`"type":"user.message"`)) >= len(page.GetEvents()) {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("the CLI does not record the prompts of %s: %w", id, errors.Join(ctx.Err(), err))
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return nil
}

// dial connects to the server's own socket.
func (s *realServer) dial() (*grpc.ClientConn, error) {
	return grpc.NewClient("unix:"+s.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
}

// close ends the server and waits for that.
func (s *realServer) close() error {
	if s.process == nil {
		return nil
	}
	_ = s.process.Process.Signal(syscall.SIGTERM)
	timer := time.AfterFunc(20*time.Second, func() { _ = s.process.Process.Kill() })
	defer timer.Stop()
	if err := s.process.Wait(); err != nil {
		return fmt.Errorf("the server ended: %w\n%s", err, s.log)
	}
	return nil
}

// startModel plays a case's script, which ends with an echo of the user's text.
func startModel(ctx context.Context, c *Case) (*offlinemodel.Server, error) {
	script, err := offlinemodel.Parse(c.Name, c.Model)
	if err != nil {
		return nil, err
	}
	if script.Default == nil {
		script.Default = &offlinemodel.Rule{Reply: []offlinemodel.Step{{Text: "You said: {{user}}"}}}
	}
	return offlinemodel.Start(ctx, offlinemodel.Options{Script: script})
}

// certificate is the files of a server's certificate for the loopback interface, and of the one that signs it.
type certificate struct{ caFile, certFile, keyFile string }

func newCertificate(folder string) (*certificate, error) {
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "conformance"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, DNSNames: []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	in := func(name string) string { return filepath.Join(folder, name) }
	c := &certificate{in("ca.pem"), in("cert.pem"), in("key.pem")}
	write := func(file, kind string, bytes []byte) error {
		return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600)
	}
	return c, errors.Join(write(c.caFile, "CERTIFICATE", caDER), write(c.certFile, "CERTIFICATE", der),
		write(c.keyFile, "PRIVATE KEY", private))
}
