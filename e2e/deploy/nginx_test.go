package deploy

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"fmt"
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

// nginxEnv names the executable of nginx.
const nginxEnv = "COPILOT_GRPC_TEST_NGINX"

// nginxToken is the bearer token of a caller.
const nginxToken = "an-operator-of-the-host"

// proxied is a bridge that callers reach through nginx, with deploy/nginx.conf.
type proxied struct {
	*harness.Daemon
	// dir has the certificate, cert.pem.
	dir string
	// address is where nginx listens, remote a client that comes that way.
	address string
	roots   *x509.CertPool
	remote  *copilot.Client
	// patience is how long nginx lets a stream be silent.
	patience time.Duration
}

func newProxied(t *testing.T, patience time.Duration, rules ...harness.Rule) *proxied {
	t.Helper()
	bin := harness.Installed(t, "nginx", nginxEnv)
	st := harness.NewScripted(t, rules...)
	dir := harness.RealDir(t)
	sum := sha256.Sum256([]byte(nginxToken))
	files := map[string]string{
		"tokens": "op " + hex.EncodeToString(sum[:]) + "\n",
		"policy.yaml": "version: 1\nidentity: {tokens: tokens}\ntenants: {host: {members: [{token: op, role: " +
			"admin}]}}\n",
	}
	p := &proxied{patience: patience, dir: dir}
	upstream := harness.FreeAddress(t)
	files["cert.pem"], files["key.pem"], p.roots = harness.SelfSigned(t)
	files["nginx.conf"] = `daemon off;
master_process off;
pid nginx.pid;
error_log stderr warn;
events {}
http {
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
    include site.conf;
}
`
	harness.WriteFiles(t, dir, files)
	p.Daemon = harness.NewDaemon(st, "--listen", upstream, "--policy", filepath.Join(dir, "policy.yaml"),
		"--drain-grace", "1s")
	for p.remote == nil { // another program may take the free address first
		p.address = harness.FreeAddress(t)
		harness.WriteFiles(t, dir, map[string]string{"site.conf": p.site(t, dir, upstream)})
		ended := harness.StartProxy(t, bin, "-p", dir, "-c", "nginx.conf", "-e", "stderr")
		p.remote = harness.DialProxy(p.Ctx, t, ended, p.address, copilot.WithToken(nginxToken),
			copilot.WithTLS(&tls.Config{RootCAs: p.roots, ServerName: "localhost"}))
	}
	t.Cleanup(func() { _ = p.remote.Close() })
	return p
}

// site is deploy/nginx.conf with the addresses and files of the test, and times that a test can wait for. Every text
// that it replaces has to be there.
func (p *proxied) site(t *testing.T, dir, upstream string) string {
	t.Helper()
	return harness.Edited(t, "../../deploy/nginx.conf", map[string]string{
		"listen 443 ":              "listen " + p.address + " ",
		"server 127.0.0.1:7443;":   "server " + upstream + ";",
		"/etc/copilot-grpc/":       dir + "/",
		"grpc_read_timeout   75s;": fmt.Sprintf("grpc_read_timeout %ds;", int(p.patience.Seconds())),
		"grpc_send_timeout   75s;": fmt.Sprintf("grpc_send_timeout %ds;", int(p.patience.Seconds())),
		"client_body_timeout 75s;": fmt.Sprintf("client_body_timeout %ds;", int(p.patience.Seconds())),
	})
}

// subscribe opens a stream through nginx with a heartbeat.
func (p *proxied) subscribe(id string, heartbeat time.Duration) bridgev1.EventService_SubscribeClient {
	p.T.Helper()
	stream, err := p.remote.EventStreams().Subscribe(p.Ctx, &bridgev1.SubscribeRequest{
		Sessions: []*bridgev1.SessionCursor{{SessionId: id}},
		Options:  &bridgev1.StreamOptions{HeartbeatInterval: durationpb.New(heartbeat)},
	})
	if err != nil {
		p.T.Fatal(err)
	}
	return stream
}

// made makes a session, not by way of nginx: the CLI may take its time to start.
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

// TestNginxIdleStreams: heartbeats keep idle streams open for longer than nginx lets any be
// silent, in both directions; one without is cut, and the status says that it may be opened
// again.
func TestNginxIdleStreams(t *testing.T) {
	t.Parallel()
	p := newProxied(t, 5*time.Second,
		harness.Rule{When: harness.WhenUser("hello"), Reply: harness.Steps(harness.Say("hi"))})
	id := p.made()
	silent := p.subscribe(id, time.Minute)
	beating := p.subscribe(id, time.Second)
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
	for err = nil; err == nil; {
		_, err = silent.Recv()
	}
	if status.Code(err) != codes.Unavailable && status.Code(err) != codes.Internal {
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

// TestNginxDrain: when the bridge behind nginx is replaced, readers get a GoAway, come back through nginx, and miss
// nothing.
func TestNginxDrain(t *testing.T) {
	t.Parallel()
	p := newProxied(t, 75*time.Second,
		harness.Rule{When: harness.WhenUser("one"), Reply: harness.Steps(harness.Say("1"))},
		harness.Rule{When: harness.WhenUser("two"), Reply: harness.Steps(harness.Say("2"))})
	id := p.made()
	plain := p.subscribe(id, time.Second)
	if err := beats(1, plain.Recv); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(p.Ctx)
	defer cancel()
	type seen struct {
		events []*bridgev1.Event
		err    error
	}
	followed := make(chan seen, 1)
	go func() {
		var s seen
		idle := 0
		for e, err := range p.remote.Session(id).Events(ctx, copilot.FromBeginning(),
			copilot.WithFilter(&bridgev1.EventFilter{IncludeLarge: true})) {
			if s.err = err; err != nil {
				break
			}
			s.events = append(s.events, e)
			if e.GetEvent().GetEventType() == "session.idle" {
				idle++
			}
			if idle == 2 {
				break
			}
		}
		followed <- s
	}()
	p.SayTo(id, "one")
	p.Written(id)
	p.Stop(syscall.SIGTERM)
	goAway := false
	for err := error(nil); err == nil; {
		var f *bridgev1.SubscribeResponse
		f, err = plain.Recv()
		goAway = goAway || f.GetGoAway() != nil
	}
	if !goAway {
		t.Error("the stream ended, and nobody had said that it would")
	}
	p.Start()
	p.Provide(id)
	p.SayTo(id, "two")
	s := <-followed
	if s.err != nil {
		t.Fatal(s.err)
	}
	want, _ := p.Durable(id)
	var got []string
	for i, e := range s.events {
		if i > 0 && !harness.Less(s.events[i-1].GetPosition(), e.GetPosition()) {
			t.Errorf("event %v comes after %v", e.GetPosition(), s.events[i-1].GetPosition())
		}
		if slices.Contains(want, e.GetEvent().GetId()) {
			got = append(got, e.GetEvent().GetId())
		}
	}
	// The last of the durable ones may come behind the idle one.
	if n := len(got); n == 0 || n > len(want) || !slices.Equal(got, want[:n]) {
		t.Errorf("the reader saw\n%v, of\n%v", got, want)
	}
}

// TestNginxDoctor: doctor finds nothing broken with deploy/nginx.conf but streams that are silent for longer than nginx
// lets them be.
func TestNginxDoctor(t *testing.T) {
	t.Parallel()
	p := newProxied(t, 3*time.Second)
	program, err := harness.Program()
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(p.dir, "config")
	if err := os.MkdirAll(filepath.Join(config, "copilot-grpc"), 0o700); err != nil {
		t.Fatal(err)
	}
	harness.WriteFiles(t, filepath.Join(config, "copilot-grpc"), map[string]string{"contexts.json": fmt.Sprintf(
		`{"contexts": {"nginx": {"target": %q, "tls_ca": %q, "tls_server_name": "localhost", "token_env": "OP"}}}`,
		p.address, filepath.Join(p.dir, "cert.pem"))})
	doctor := exec.CommandContext(p.Ctx, program, "doctor", "--context", "nginx", "--idle", "6s")
	doctor.Env = append(doctor.Environ(), "XDG_CONFIG_HOME="+config, "OP="+nginxToken)
	out, err := doctor.CombinedOutput()
	broken := regexp.MustCompile("(?m)^MISSING  .*").FindAllString(string(out), -1)
	if err == nil || len(broken) != 1 || !strings.HasPrefix(broken[0], "MISSING  idle streams: ") ||
		strings.Count(string(out), "\nok ")+1 != 8 {
		t.Errorf("%v:\n%s", err, out)
	}
}
