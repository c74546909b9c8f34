package cluster

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	copilot "github.com/copilot-grpc/copilot-grpc/clients/go"
	"github.com/copilot-grpc/copilot-grpc/e2e/harness"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
)

// envoyEnv names the executable of Envoy.
const envoyEnv = "COPILOT_GRPC_TEST_ENVOY"

// operatorToken is the bearer token of the client and of Envoy's health checks.
const operatorToken = "an-operator-of-the-host"

// balanced is a cluster whose replicas callers reach through Envoy, with deploy/envoy/envoy.yaml.
type balanced struct {
	*harness.Scripted
	replicas []*harness.Daemon
	// upstreams are the addresses of the replicas that Envoy knows, admin is where Envoy reports its counters.
	upstreams []string
	admin     string
	// address is that of Envoy, and tls trusts it.
	address string
	tls     *tls.Config
	// remote is a client that connects through Envoy.
	remote *copilot.Client
}

// newBalanced starts three replicas, and Envoy, which lets streams be silent for a time.
func newBalanced(t *testing.T, silence time.Duration, rules ...harness.Rule) *balanced {
	t.Helper()
	return newBalancedBy(t, func(b *balanced, dir string) string { return b.config(dir, silence) }, rules...)
}

// newBalancedBy is newBalanced with Envoy's file.
func newBalancedBy(t *testing.T, file func(b *balanced, dir string) string, rules ...harness.Rule) *balanced {
	t.Helper()
	bin := harness.Installed(t, "envoy", envoyEnv)
	harness.SkipWithoutCLI(t)
	b := &balanced{Scripted: harness.NewScripted(t, rules...)}
	dir := harness.RealDir(t)
	sum := sha256.Sum256([]byte(operatorToken))
	cert, key, roots := harness.SelfSigned(t)
	b.tls = &tls.Config{RootCAs: roots, ServerName: "localhost"}
	harness.WriteFiles(t, dir, map[string]string{
		"cert.pem": cert, "key.pem": key, "replicas-ca.pem": cert,
		"tokens": "op " + hex.EncodeToString(sum[:]) + "\n",
		"policy.yaml": "version: 1\nidentity: {tokens: tokens}\n" +
			"tenants: {host: {members: [{token: op, role: admin}]}}\n",
	})
	for range 3 {
		b.upstreams = append(b.upstreams, harness.FreeAddress(t))
	}
	b.replicas, _ = replicas(b.Scripted, len(b.upstreams), func(i int) []string {
		return []string{
			"--listen", b.upstreams[i], "--tls-cert", filepath.Join(dir, "cert.pem"),
			"--tls-key", filepath.Join(dir, "key.pem"), "--policy", filepath.Join(dir, "policy.yaml"),
			"--drain-grace", "1s",
		}
	})
	for tries := 0; b.remote == nil; tries++ { // another program may take a free address first
		if tries == 3 {
			t.Fatal("envoy ends at its start")
		}
		b.address = harness.FreeAddress(t)
		b.admin = harness.FreeAddress(t)
		harness.WriteFiles(t, dir, map[string]string{"envoy.yaml": file(b, dir)})
		// One worker: each has a separate round.
		envoy := harness.StartProxy(t, bin, "--config-path", filepath.Join(dir, "envoy.yaml"), "--use-dynamic-base-id",
			"--concurrency", "1", "--log-level", "warn")
		b.remote = harness.DialProxy(b.Ctx, t, envoy, b.address, copilot.WithToken(operatorToken), copilot.WithTLS(b.tls))
	}
	t.Cleanup(func() { _ = b.remote.Close() })
	return b
}

// config is deploy/envoy/envoy.yaml with the addresses and files of the test, a time that a test can wait for, and
// Envoy's counters. Each text that it replaces has to be there.
func (b *balanced) config(dir string, silence time.Duration) string {
	b.T.Helper()
	changes := map[string]string{
		"address: 0.0.0.0, port_value: 443}":             socket(b.address),
		"/etc/envoy/":                                    dir + "/",
		"replicas.example.com":                           "localhost",
		"TOKEN-OF-THE-HEALTH-CHECK":                      operatorToken,
		"stream_idle_timeout: 75s":                       fmt.Sprintf("stream_idle_timeout: %gs", silence.Seconds()),
		"pipe: {path: /run/envoy/admin.sock, mode: 384}": "socket_address: {" + socket(b.admin),
	}
	for i, name := range []string{"a", "b", "c"} {
		changes["address: replica-"+name+".example.com, port_value: 7443}"] = socket(b.upstreams[i])
		// These replicas do not listen for browsers.
		changes["address: replica-"+name+".example.com, port_value: 7780}"] = socket("127.0.0.1:1")
	}
	return harness.Edited(b.T, "../../deploy/envoy/envoy.yaml", changes)
}

// socket is the end of a socket address in Envoy's configuration.
func socket(address string) string {
	host, port, _ := net.SplitHostPort(address)
	return "address: " + host + ", port_value: " + port + "}"
}

// requests are the numbers of requests that Envoy has sent to each replica that it finds healthy.
func (b *balanced) requests() map[string]int {
	b.T.Helper()
	resp, err := http.Get("http://" + b.admin + "/clusters?format=json")
	if err != nil {
		b.T.Fatal(err)
	}
	defer resp.Body.Close()
	var report struct {
		Clusters []struct {
			Hosts []struct {
				Address struct {
					Socket struct {
						Address string `json:"address"`
						Port    int    `json:"port_value"`
					} `json:"socket_address"`
				} `json:"address"`
				Stats []struct {
					Name  string `json:"name"`
					Value string `json:"value"`
				} `json:"stats"`
				Health struct {
					EDS    string `json:"eds_health_status"`
					Failed bool   `json:"failed_active_health_check"`
				} `json:"health_status"`
			} `json:"host_statuses"`
		} `json:"cluster_statuses"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&report); err != nil {
		b.T.Fatal(err)
	}
	n := map[string]int{}
	for _, c := range report.Clusters {
		for _, h := range c.Hosts {
			for _, s := range h.Stats {
				if s.Name == "rq_total" && !h.Health.Failed {
					at := net.JoinHostPort(h.Address.Socket.Address, strconv.Itoa(h.Address.Socket.Port))
					requests, _ := strconv.Atoi(s.Value)
					n[at] += requests
				}
			}
		}
	}
	return n
}

// create makes a session through Envoy, with tools that this client executes.
func (b *balanced) create(id string, tools ...copilot.Tool) *copilot.Session {
	b.T.Helper()
	config := b.Config()
	config.Provider = nil
	s, err := b.remote.CreateSession(b.Ctx,
		copilot.SessionOptions{ID: id, Config: config, ProviderRef: "ours", Tools: tools})
	if err != nil {
		b.T.Fatal(err)
	}
	return s
}

// owner is the replica that has a session, as the header of an answer through Envoy names it.
func (b *balanced) owner(id string) int {
	b.T.Helper()
	var header metadata.MD
	_, err := b.remote.Sessions().GetSession(b.Ctx, &bridgev1.GetSessionRequest{SessionId: id}, grpc.Header(&header))
	if err != nil {
		b.T.Fatal(err)
	}
	var n int
	if _, err := fmt.Sscanf(strings.Join(header.Get("copilot-owner-node"), ""), "n%d", &n); err != nil {
		b.T.Fatalf("the owner is %q", header.Get("copilot-owner-node"))
	}
	return n - 1
}

// Envoy distributes calls, and each replica takes turns of the session.
func TestEnvoySpreadsCalls(t *testing.T) {
	t.Parallel()
	b := newBalanced(t, 75*time.Second)
	create(b.replicas[0], "s")
	b.Eventually("Envoy finds all replicas healthy", func() bool { return len(b.requests()) == len(b.upstreams) })
	before := b.requests()
	turns := 0
	b.Eventually("each replica has had a turn", func() bool {
		turns++
		prompt := fmt.Sprintf("turn %d", turns)
		got, err := b.remote.Sessions().SendAndWait(b.Ctx,
			&bridgev1.SendAndWaitRequest{SessionId: "s", Prompt: &bridgev1.Prompt{Text: prompt}})
		if err != nil || got.GetOutcome().GetText() != "You said: "+prompt {
			t.Fatalf("%s: %v, %v", prompt, got, err)
		}
		after := b.requests()
		return !slices.ContainsFunc(b.upstreams, func(at string) bool { return after[at] == before[at] })
	})
}

// Heartbeats keep a Subscribe and an Attach stream open for longer than Envoy lets any be silent, also while a tool
// call waits; a stream without is cut.
func TestEnvoyIdleStreams(t *testing.T) {
	t.Parallel()
	const silence = 3 * time.Second
	b := newBalanced(t, silence, harness.OnUser("work", harness.Call("lookup", nil)),
		harness.OnResult("lookup", harness.Say("It said {{tool_result}}")))
	create(b.replicas[0], "s")
	silent, beating := b.Subscribe(b.remote, "s", time.Minute), b.Subscribe(b.remote, "s", time.Second)
	attach, err := b.remote.Callbacks().Attach(b.Ctx)
	if err != nil {
		t.Fatal(err)
	}
	send := func(req *bridgev1.AttachRequest) {
		if err := attach.Send(req); err != nil {
			t.Fatal(err)
		}
	}
	send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Start{Start: &bridgev1.AttachStart{
		Session: &bridgev1.AttachStart_JoinSessionId{JoinSessionId: "s"},
		Tools:   []*cliv1.ToolDefinition{harness.Declared("lookup").Definition},
		Options: &bridgev1.StreamOptions{HeartbeatInterval: durationpb.New(time.Second)},
	}}})
	if _, err := attach.Recv(); err != nil {
		t.Fatal(err)
	}
	send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Command{Command: &bridgev1.AttachCommand{
		CommandId: "1", Command: &bridgev1.AttachCommand_Send{Send: &bridgev1.Prompt{Text: "work"}},
	}}})
	callback, outcome := "", (*bridgev1.TurnOutcome)(nil)
	// The call waits until the stream has only had heartbeats for longer than the limit.
	for beats := 0; outcome == nil; {
		f, err := attach.Recv()
		if err != nil {
			t.Fatalf("after %d heartbeats: %v", beats, err)
		}
		if c := f.GetStream().GetCallbackRequested().GetCallback(); c != nil {
			callback = c.GetCallbackId()
		}
		if callback != "" && f.GetStream().GetHeartbeat() != nil {
			if beats++; beats == int(silence.Seconds())+2 {
				answer, _ := copilot.AnswerTool("enough")
				send(&bridgev1.AttachRequest{Frame: &bridgev1.AttachRequest_Answer{
					Answer: &bridgev1.CallbackAnswer{CallbackId: callback, Answer: answer},
				}})
			}
		}
		outcome = f.GetStream().GetTurnEnded().GetOutcome()
	}
	if got := outcome.GetText(); got != "It said enough" {
		t.Errorf("the turn ended with %q", got)
	}
	for n := 0; n < 2*int(silence.Seconds()); {
		f, err := beating.Recv()
		if err != nil {
			t.Fatalf("the stream with heartbeats: %v", err)
		}
		if f.GetHeartbeat() != nil {
			n++
		}
	}
	for err == nil {
		_, err = silent.Recv()
	}
	if status.Code(err) != codes.Unavailable && status.Code(err) != codes.Internal {
		t.Errorf("the silent stream ended with %v", err)
	}
}

// The owner of a session is drained, and the next one is killed: the Go client behind Envoy goes on, its tool is
// called, and its reader gets each durable event once.
func TestEnvoyReplicasEnd(t *testing.T) {
	t.Parallel()
	b := newBalanced(t, 75*time.Second, harness.OnUser("work", harness.Call("lookup", nil)),
		harness.OnResult("lookup", harness.Say("It said {{tool_result}}")))
	s := b.create("s", harness.Answering("lookup", "enough"))
	turns := 0
	var read []string
	ended := make(chan error, 1)
	go func() {
		for e, err := range b.remote.Session("s").Events(b.Ctx, copilot.FromBeginning(),
			copilot.WithFilter(&bridgev1.EventFilter{IncludeLarge: true})) {
			if err != nil {
				ended <- err
				return
			}
			if at := e.GetPosition(); !e.GetEvent().GetEphemeral() {
				read = append(read, fmt.Sprintf("%s at %d/%d", e.GetEvent().GetId(), at.GetEpoch(), at.GetSeq()))
			}
			if e.GetEvent().GetEventType() == "session.idle" {
				if turns++; turns == 3 {
					break
				}
			}
		}
		ended <- nil
	}()
	work := func(after string) {
		outcome, err := s.SendAndWait(b.Ctx, "work "+after)
		if err == nil {
			err = outcome.Err()
		}
		if err != nil || outcome.Text() != "It said enough" {
			t.Fatalf("the turn after %s: %v, %v", after, outcome, err)
		}
	}
	work("the start")
	left := slices.Clone(b.replicas)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		owner := b.owner("s")
		b.replicas[owner].Stop(sig)
		left = slices.DeleteFunc(left, func(d *harness.Daemon) bool { return d == b.replicas[owner] })
		work(sig.String())
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	want := durable(left[0], "s")
	// Durable events may follow the last turn.
	if n := len(read); n == 0 || n > len(want) || !slices.Equal(read, want[:n]) {
		t.Errorf("the reader got\n%v\nof\n%v", read, want)
	}
}
