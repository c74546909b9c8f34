package deploy

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// operatorToken is the bearer token of an admin.
const operatorToken = "an-operator-of-the-host"

// proxied is a server that callers reach through a proxy, with the proxy's file of deploy.
type proxied struct {
	*harness.Daemon
	// dir has the certificate, the policy, and the proxy's files.
	dir string
	// address is where the proxy listens, remote a client that connects there.
	address string
	proxy   *harness.Proxy
	// certificate and key are those of the proxy and, if it has some, of the server.
	certificate string
	key         string
	roots       *x509.CertPool
	remote      *copilot.Client
	// token is the bearer token of remote.
	token string
	// patience is how long the proxy lets a stream be silent.
	patience time.Duration
}

// newProxied writes the files that the server and the proxy need.
func newProxied(t *testing.T, patience time.Duration) *proxied {
	t.Helper()
	p := &proxied{dir: harness.RealDir(t), patience: patience, token: operatorToken}
	sum := sha256.Sum256([]byte(operatorToken))
	files := map[string]string{
		"tokens": "op " + hex.EncodeToString(sum[:]) + "\n",
		"policy.yaml": "version: 1\nidentity: {tokens: tokens}\ntenants: {host: {members: [{token: op, role: " +
			"admin}]}}\n",
	}
	p.certificate, p.key, p.roots = harness.SelfSigned(t)
	files["cert.pem"], files["key.pem"] = p.certificate, p.key
	harness.WriteFiles(t, p.dir, files)
	return p
}

// serve starts the server.
func (p *proxied) serve(st *harness.Scripted, flags ...string) {
	st.T.Helper()
	p.Daemon = harness.NewDaemon(st, append(flags, "--policy", filepath.Join(p.dir, "policy.yaml"))...)
}

// open starts the proxy, for which it writes a file, and connects through it.
func (p *proxied) open(file string, text func() string, program string, args ...string) {
	p.T.Helper()
	for p.remote == nil { // another program may take the free address first
		p.address = harness.FreeAddress(p.T)
		harness.WriteFiles(p.T, p.dir, map[string]string{file: text()})
		p.proxy = harness.StartProxy(p.T, program, args...)
		p.remote = harness.DialProxy(p.Ctx, p.T, p.proxy, p.address, copilot.WithToken(p.token), p.tls())
	}
	p.T.Cleanup(func() { _ = p.remote.Close() })
}

func (p *proxied) tls() copilot.Option {
	return copilot.WithTLS(&tls.Config{RootCAs: p.roots, ServerName: "localhost"})
}

// awaitClosed waits until the proxy refuses connections.
func (p *proxied) awaitClosed() {
	p.T.Helper()
	p.Eventually("the proxy refuses connections", func() bool {
		conn, err := new(net.Dialer).DialContext(p.Ctx, "tcp", p.address)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
}

// made makes a session, not by way of the proxy: the CLI may take its time to start.
func (p *proxied) made() (id string) {
	p.T.Helper()
	created, err := p.Client.Sessions().CreateSession(p.Ctx, &bridgev1.CreateSessionRequest{Config: p.Config()})
	if err != nil {
		p.T.Fatal(err)
	}
	return created.GetSession().GetSessionId()
}

// beats reads frames until so many heartbeats have come.
func beats(n int, recv func() (*bridgev1.SubscribeResponse, error)) error {
	for n > 0 {
		f, err := recv()
		if err != nil {
			return fmt.Errorf("%d heartbeats before the end: %w", n, err)
		}
		if f.GetHeartbeat() != nil {
			n--
		}
	}
	return nil
}

// ended reads a stream until its end, and reports whether the server has announced the end.
func ended(stream bridgev1.EventService_SubscribeClient) (announced bool, err error) {
	for {
		f, err := stream.Recv()
		if err != nil {
			return announced, err
		}
		announced = announced || f.GetGoAway() != nil
	}
}

// testIdleStreams: heartbeats keep idle streams open for longer than the proxy lets any be silent, in both directions;
// one without is cut, and the status says that it may be opened again. The model answers "hello".
func (p *proxied) testIdleStreams() {
	t, id := p.T, p.made()
	silent := p.Subscribe(p.remote, id, time.Minute)
	beating := p.Subscribe(p.remote, id, time.Second)
	attach, err := p.remote.Callbacks().Attach(p.Ctx)
	if err == nil {
		err = attach.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: &bridgev1.AttachStart{
			Session: &bridgev1.AttachStart_JoinSessionId{JoinSessionId: id},
			Options: &bridgev1.StreamOptions{HeartbeatInterval: durationpb.New(time.Second)},
		}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	enough := int(p.patience.Seconds()) + 1
	both := make(chan error, 2)
	go func() { both <- beats(enough, beating.Recv) }()
	go func() {
		both <- beats(enough, func() (*bridgev1.SubscribeResponse, error) {
			f, err := attach.Recv()
			if f.GetStream().GetHeartbeat() != nil {
				err = attach.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Heartbeat{Heartbeat: &bridgev1.AttachHeartbeat{}}})
			}
			return f.GetStream(), err
		})
	}()
	for range 2 {
		if err := <-both; err != nil {
			t.Fatal(err)
		}
	}
	if _, err = ended(silent); status.Code(err) != codes.Unavailable && status.Code(err) != codes.Internal {
		t.Errorf("the silent stream ended with %v", err)
	}
	// The open stream still carries events.
	if err := attach.Send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Command{Command: &bridgev1.AttachCommand{
		CommandId: "1", Command: &bridgev1.AttachCommand_Send{Send: &bridgev1.Prompt{Text: "hello"}},
	}}}); err != nil {
		t.Fatal(err)
	}
	for done := false; !done; {
		f, err := attach.Recv()
		if err != nil {
			t.Fatal(err)
		}
		done = f.GetStream().GetTurnEnded() != nil
	}
	if err := attach.CloseSend(); err != nil {
		t.Error(err)
	}
}

// follow reads a session through the proxy until so many turns have ended. The returned function waits for that, and
// checks that the reader got each durable event once, in order.
func (p *proxied) follow(id string, turns int) (check func()) {
	ctx, cancel := context.WithCancel(p.Ctx)
	p.T.Cleanup(cancel)
	var events []*bridgev1.Event
	done := make(chan error, 1)
	read := func() error {
		for e, err := range p.remote.Session(id).Events(ctx, copilot.FromBeginning(),
			copilot.WithFilter(&bridgev1.EventFilter{IncludeLarge: true})) {
			if err != nil {
				return err
			}
			events = append(events, e)
			if e.GetEvent().GetEventType() == "session.idle" {
				if turns--; turns == 0 {
					break
				}
			}
		}
		return nil
	}
	go func() { done <- read() }()
	return func() {
		p.T.Helper()
		if err := <-done; err != nil {
			p.T.Fatal(err)
		}
		want, _ := p.Durable(id)
		var got []string
		for i, e := range events {
			if i > 0 && !harness.Less(events[i-1].GetPosition(), e.GetPosition()) {
				p.T.Errorf("event %v comes after %v", e.GetPosition(), events[i-1].GetPosition())
			}
			if slices.Contains(want, e.GetEvent().GetId()) {
				got = append(got, e.GetEvent().GetId())
			}
		}
		// The last of the durable ones may come behind the idle one.
		if n := len(got); n == 0 || n > len(want) || !slices.Equal(got, want[:n]) {
			p.T.Errorf("the reader saw\n%v, of\n%v", got, want)
		}
	}
}

// testDrain replaces the server: readers get a GoAway, come back through the proxy, and miss nothing. The model answers
// "one" and "two".
func (p *proxied) testDrain() {
	p.T.Helper()
	id := p.made()
	plain := p.Subscribe(p.remote, id, time.Second)
	if err := beats(1, plain.Recv); err != nil {
		p.T.Fatal(err)
	}
	check := p.follow(id, 2)
	p.SayTo(id, "one")
	p.Written(id)
	p.Stop(syscall.SIGTERM)
	if announced, _ := ended(plain); !announced {
		p.T.Error("the stream ended, and nobody had said that it would")
	}
	p.Start()
	p.Provide(id)
	p.SayTo(id, "two")
	check()
}

// testDoctor expects that doctor finds nothing broken but streams that are silent for longer than the proxy lets them
// be.
func (p *proxied) testDoctor() {
	t := p.T
	t.Helper()
	program, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(p.dir, "config")
	if err := os.MkdirAll(filepath.Join(config, "copilot-grpc"), 0o700); err != nil {
		t.Fatal(err)
	}
	harness.WriteFiles(t, filepath.Join(config, "copilot-grpc"), map[string]string{"contexts.json": fmt.Sprintf(
		`{"contexts": {"proxied": {"target": %q, "tls_ca": %q, "tls_server_name": "localhost", "token_env": "OP"}}}`,
		p.address, filepath.Join(p.dir, "cert.pem"))})
	doctor := exec.CommandContext(p.Ctx, program, "doctor", "--context", "proxied", "--idle", "6s")
	doctor.Env = append(doctor.Environ(), "XDG_CONFIG_HOME="+config, "OP="+operatorToken)
	out, err := doctor.CombinedOutput()
	broken := regexp.MustCompile("(?m)^MISSING  .*").FindAllString(string(out), -1)
	if err == nil || len(broken) != 1 || !strings.HasPrefix(broken[0], "MISSING  idle streams: ") ||
		strings.Count(string(out), "\nok ")+1 != 8 {
		t.Errorf("%v:\n%s", err, out)
	}
}
