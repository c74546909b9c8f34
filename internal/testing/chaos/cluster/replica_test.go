package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/fakecli"
	"github.com/copilot-grpc/copilot-grpc/internal/testing/freeport"
	"github.com/copilot-grpc/copilot-grpc/server/servertest"
)

// drainTime bounds the end of a replica after SIGTERM: it hands its sessions over, also while NATS elects a leader.
const drainTime = 30 * time.Second

// slowness is how late each piece is on a slow link.
const slowness = 20 * time.Millisecond

// toolName is the tool that callers answer.
const toolName = "ask"

// replica is a server process, which a supervisor starts again whenever it ends.
type replica struct {
	n       int
	dir     string
	args    []string
	listen  string // for other replicas
	nats    []*link
	peers   *link
	conn    *grpc.ClientConn
	fail    func(format string, args ...any) // records a violation
	stopped chan struct{}                    // closed after the last life
	prepare func(life int) error             // called before each life; nil for nothing
	lives   int                              // of the supervisor's goroutine
	record  recorder                         // records the calls of callers; nil for none

	striking sync.Mutex // held during an action; taken before mu

	mu      sync.Mutex
	process *os.Process
	exited  chan struct{} // closed at the end of this life
	down    time.Duration // for how long it stays away after this life
	orderly bool          // this life received SIGTERM
}

// recorder is told of a unary call with its answer, the header of the answer, and the time before the call.
type recorder func(method string, request, reply any, header metadata.MD, from time.Time, err error)

// observe is the interceptor for the recorder.
func (r *replica) observe(ctx context.Context, method string, request, reply any, cc *grpc.ClientConn,
	invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	if r.record == nil {
		return invoke(ctx, method, request, reply, cc, opts...)
	}
	var header metadata.MD
	from := time.Now()
	err := invoke(ctx, method, request, reply, cc, append(opts, grpc.Header(&header))...)
	r.record(method, request, reply, header, from, err)
	return err
}

// newReplica writes what a replica needs into its directory. It does not start it. flags replace others of the same
// name.
func newReplica(
	t *testing.T, n int, urls string, ca *servertest.CA, fail func(string, ...any), flags ...string,
) *replica {
	t.Helper()
	dir, err := os.MkdirTemp("", fmt.Sprintf("replica%d-", n)) // short: it is in a socket's path
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script, err := json.Marshal(fakecli.Script{Prompts: []fakecli.Prompt{
		{Match: "tool ", Turns: []fakecli.Turn{
			{Tools: []fakecli.Tool{{Name: toolName, Arguments: json.RawMessage(`{}`)}}}, {Text: "Thanks."}}},
		{Match: "slow ", Turns: []fakecli.Turn{{Deltas: &fakecli.Deltas{Count: 30, Size: 20, Rate: 60}}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{n: n, dir: dir, listen: freeAddress(t), fail: fail, stopped: make(chan struct{})}
	program := fmt.Sprintf("#!/bin/sh\n%s='%s' %s='%s' exec '%s' \"$@\"\n", scriptEnv, r.path("script.json"), oracleEnv,
		r.path("oracle.jsonl"), self)
	for name, text := range map[string]string{"script.json": string(script), "copilot": program} {
		if err := os.WriteFile(r.path(name), []byte(text), 0o700); err != nil { //nolint:gosec // one is to be run
			t.Fatal(err)
		}
	}
	files := ca.Issue(t)
	r.args = []string{
		"serve", "--listen", "unix:" + r.path("s"), "--cli", r.path("copilot"), "--no-install", "--no-login",
		"--home", r.path("home"), "--user-home", dir, "--work-dir", dir, "--data-dir", r.path("data"),
		"--cluster", urls, "--cluster-lease", fakeTiming.Lease.String(), "--node-name", fmt.Sprint("r", n),
		"--node-listen", r.listen,
		"--node-cert", files.CertFile, "--node-key", files.KeyFile, "--node-ca", files.CAFile,
		"--drain-grace", fakeTiming.DrainGrace.String(), "--idle-unload", fakeTiming.Unload.String(),
	}
	r.args = append(r.args, flags...)
	r.conn, err = grpc.NewClient("unix:"+r.path("s"), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(r.observe),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second, Backoff: backoff.Config{
			BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, MaxDelay: 200 * time.Millisecond,
		}}))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// link puts a link before the replica, for other replicas, and notes its links to the NATS servers.
func (r *replica) link(t *testing.T, nats []*link) {
	t.Helper()
	r.nats, r.peers = nats, newLink(t, r.listen)
	r.args = append(r.args, "--node-address", r.peers.address())
}

func (r *replica) path(name string) string { return filepath.Join(r.dir, name) }

func freeAddress(t *testing.T) string {
	t.Helper()
	address, err := freeport.Address()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// supervise runs the replica, life after life, until ctx ends; the last life gets SIGTERM.
func (r *replica) supervise(ctx context.Context) {
	defer close(r.stopped)
	for ctx.Err() == nil {
		if err := r.live(ctx); err != nil {
			r.fail("replica %d: %v", r.n, err)
			return
		}
		r.mu.Lock()
		down := max(r.down, 100*time.Millisecond)
		r.down = 0
		r.mu.Unlock()
		pause(ctx, down)
	}
}

// live is one life. A replica that ends without a signal has lost its lease or NATS. After SIGTERM it must end with 0,
// unless it loses its lease meanwhile.
func (r *replica) live(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.OpenFile(r.path("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	r.lives++
	if r.prepare != nil {
		if err := r.prepare(r.lives); err != nil {
			return err
		}
	}
	cmd := exec.Command(self, r.args...)
	cmd.Env = append(os.Environ(), replicaEnv+"=1")
	cmd.Stdout, cmd.Stderr = log, log
	before, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	if err := cmd.Start(); err != nil {
		return err
	}
	r.mu.Lock()
	exited := make(chan struct{})
	r.process, r.exited, r.orderly = cmd.Process, exited, false
	r.mu.Unlock()
	last := context.AfterFunc(ctx, r.drain)
	defer last()
	err = cmd.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	close(exited)
	r.process = nil
	status, ok := errors.AsType[*exec.ExitError](err)
	if ok && r.orderly && status.Exited() && ctx.Err() == nil && !r.lostLease(before) {
		r.fail("replica %d ended with %v after SIGTERM", r.n, err)
	}
	return nil
}

// lostLease reports whether the replica has logged, after some bytes, that it lost its lease: NATS had a fault, too.
func (r *replica) lostLease(before int64) bool {
	text, err := os.ReadFile(r.path("log"))
	return err == nil && bytes.Contains(text[before:], []byte("this replica has lost its sessions to others"))
}

// signal sends a signal to this life, after which the replica stays away for a time.
func (r *replica) signal(sig syscall.Signal, down time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.process != nil {
		r.down, r.orderly = down, sig == syscall.SIGTERM
		_ = r.process.Signal(sig) // it may have ended
	}
}

// drain ends this life in order, within drainTime.
func (r *replica) drain() { r.drainFor(0) }

func (r *replica) drainFor(down time.Duration) {
	r.mu.Lock()
	exited := r.exited
	r.mu.Unlock()
	r.signal(syscall.SIGTERM, down)
	select {
	case <-exited:
	case <-time.After(drainTime):
		r.fail("replica %d did not end within %v of SIGTERM", r.n, drainTime)
		r.signal(syscall.SIGKILL, down)
		<-exited
	}
}

// awaitServing waits until this life serves: before that, SIGTERM ends its start with an error.
func (r *replica) awaitServing(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := bridgev1.NewRuntimeServiceClient(r.conn).GetServerInfo(ctx, &bridgev1.GetServerInfoRequest{},
		grpc.WaitForReady(true))
	if err != nil && ctx.Err() != nil {
		r.fail("replica %d did not serve within %v: %v", r.n, patience, err)
	}
}

// cut carries an action on the replica's links out, and returns when they are whole again.
func (r *replica) cut(ctx context.Context, a Action) {
	links := r.nats
	if a.Fault == CutPeers {
		links = []*link{r.peers}
	}
	var mend []func()
	for _, k := range links {
		if a.Fault == SlowNATS {
			k.slow(slowness)
			mend = append(mend, func() { k.slow(0) })
		} else {
			mend = append(mend, k.hold(a.Directions))
		}
	}
	pause(ctx, a.For)
	for _, m := range mend {
		m()
	}
}

// strike carries an action out. It returns when the target is on its way back. A slow action delays the next one of
// this replica: a second SIGTERM would end a drain with an error.
func (r *replica) strike(ctx context.Context, a Action) {
	r.striking.Lock()
	defer r.striking.Unlock()
	switch a.Fault {
	case Kill:
		r.signal(syscall.SIGKILL, a.For)
	case Drain:
		r.awaitServing(ctx)
		r.drainFor(a.For)
	case Freeze:
		r.signal(syscall.SIGSTOP, 0)
		pause(ctx, a.For)
		r.signal(syscall.SIGCONT, 0)
	}
}

func (r *replica) sessions() bridgev1.SessionServiceClient {
	return bridgev1.NewSessionServiceClient(r.conn)
}

func (r *replica) events() bridgev1.EventServiceClient { return bridgev1.NewEventServiceClient(r.conn) }

func (r *replica) runtimes() bridgev1.RuntimeServiceClient {
	return bridgev1.NewRuntimeServiceClient(r.conn)
}

func (r *replica) callbacks() bridgev1.CallbackServiceClient {
	return bridgev1.NewCallbackServiceClient(r.conn)
}

// pause waits for a time, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
