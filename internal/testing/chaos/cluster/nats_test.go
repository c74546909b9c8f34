package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/freeport"
)

// natsEnv makes this program a NATS server: it has its natsOptions.
const natsEnv = "CLUSTER_NATS"

// natsOptions are the options of a NATS server that syncs each message.
type natsOptions struct {
	Name string
	// Port is for clients, Route for the other servers; Routes are the addresses of the others.
	Port, Route int
	Routes      []string
	Dir         string
}

// runNATS runs a NATS server until a signal, or until the test's process has ended.
func runNATS(text string) error {
	var given natsOptions
	if err := json.Unmarshal([]byte(text), &given); err != nil {
		return err
	}
	o := server.Options{
		ServerName: given.Name, Host: "127.0.0.1", Port: given.Port, JetStream: true, StoreDir: given.Dir, NoLog: true,
		SyncAlways: true, Cluster: server.ClusterOpts{
			Name: "test", Host: "127.0.0.1", Port: given.Route, NoAdvertise: true, // clients stay on their links
		},
	}
	for _, address := range given.Routes {
		o.Routes = append(o.Routes, &url.URL{Scheme: "nats", Host: address})
	}
	s, err := server.NewServer(&o)
	if err != nil {
		return err
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	s.Start() // it takes SIGTERM
	s.WaitForShutdown()
	return nil
}

// natsServer is a NATS server in a process, which is started again whenever it ends.
type natsServer struct {
	options natsOptions
	out, in []*link                          // to other servers, and from them
	disk    *disk                            // nil where there can be none
	fail    func(format string, args ...any) // records a violation

	mu      sync.Mutex
	process *os.Process
	exited  chan struct{} // closed at the end of this life
	stdin   io.WriteCloser
}

// startNATS starts NATS servers that end with the test, and waits until JetStream works.
func startNATS(t *testing.T, fail func(string, ...any)) []*natsServer {
	t.Helper()
	dir := t.TempDir()
	all := make([]*natsServer, servers)
	for i := range all {
		all[i] = &natsServer{fail: fail, options: natsOptions{
			Name: fmt.Sprint("n", i), Port: freePort(t), Route: freePort(t),
			Dir: filepath.Join(dir, fmt.Sprint(i)),
		}}
		var err error
		if all[i].disk, err = newDisk(t); err != nil {
			t.Logf("the disk of a NATS server is never full: %v", err)
		} else {
			all[i].options.Dir = filepath.Join(all[i].disk.dir, "data")
		}
	}
	for i, s := range all {
		for k, other := range all {
			if i != k {
				to := newLink(t, fmt.Sprint("127.0.0.1:", other.options.Route))
				s.options.Routes = append(s.options.Routes, to.address())
				s.out, other.in = append(s.out, to), append(other.in, to)
			}
		}
	}
	for _, s := range all {
		if err := s.start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.end(syscall.SIGKILL) })
	}
	js := jetStream(t, all)
	for deadline := time.Now().Add(patience); ; pause(t.Context(), 50*time.Millisecond) {
		_, err := js.CreateOrUpdateStream(t.Context(), jetstream.StreamConfig{
			Name: "ready", Replicas: servers, Storage: jetstream.MemoryStorage,
		})
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the NATS servers are not ready: %v", err)
		}
	}
	if err := js.DeleteStream(t.Context(), "ready"); err != nil {
		t.Fatal(err)
	}
	return all
}

// jetStream returns JetStream on a connection to any of the servers, which ends with the test.
func jetStream(t *testing.T, all []*natsServer) jetstream.JetStream {
	t.Helper()
	var urls string
	for _, s := range all {
		urls += "," + s.url()
	}
	nc, err := nats.Connect(urls[1:], nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond),
		nats.RetryOnFailedConnect(true))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func freePort(t *testing.T) int {
	t.Helper()
	port, err := freeport.Port()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func (s *natsServer) address() string { return fmt.Sprint("127.0.0.1:", s.options.Port) }
func (s *natsServer) url() string     { return "nats://" + s.address() }

// start begins a life.
func (s *natsServer) start() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	text, err := json.Marshal(s.options)
	if err != nil {
		return err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), natsEnv+"="+string(text))
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	s.mu.Lock()
	s.process, s.exited, s.stdin = cmd.Process, exited, in
	s.mu.Unlock()
	go func() { // ends with the process
		_ = cmd.Wait() // signals end it
		close(exited)
	}()
	return nil
}

func (s *natsServer) signal(sig syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.fail("signalling %s: %v", s.options.Name, err)
	}
}

// end ends this life by a signal, and waits for it.
func (s *natsServer) end(sig syscall.Signal) {
	s.signal(sig)
	s.mu.Lock()
	exited, in := s.exited, s.stdin
	s.mu.Unlock()
	select {
	case <-exited:
	case <-time.After(drainTime):
		s.signal(syscall.SIGKILL)
		<-exited
	}
	_ = in.Close()
}

// strike carries an action out. It returns when the server runs again.
func (s *natsServer) strike(ctx context.Context, a Action) {
	switch a.Fault {
	case FreezeNATS:
		s.signal(syscall.SIGSTOP)
		pause(ctx, a.For)
		s.signal(syscall.SIGCONT)
		return
	case PartNATS:
		var mend []func()
		for _, k := range s.out {
			mend = append(mend, k.hold(a.Directions))
		}
		for _, k := range s.in {
			mend = append(mend, k.hold(a.Directions.reverse()))
		}
		pause(ctx, a.For)
		for _, m := range mend {
			m()
		}
		return
	case FillNATS:
		s.fill(ctx, a.For)
		s.end(syscall.SIGTERM)
		a.For = 0
	case KillNATS:
		s.end(syscall.SIGKILL)
	default:
		s.end(syscall.SIGTERM)
	}
	pause(ctx, a.For)
	if err := s.start(); err != nil {
		s.fail("starting %s again: %v", s.options.Name, err)
	}
}

// fill leaves no room on the server's disk for some time.
func (s *natsServer) fill(ctx context.Context, length time.Duration) {
	if s.disk == nil {
		return
	}
	release, err := s.disk.fill()
	if err != nil {
		s.fail("filling the disk of %s: %v", s.options.Name, err)
		return
	}
	pause(ctx, length)
	if err := release(); err != nil {
		s.fail("making room on the disk of %s: %v", s.options.Name, err)
	}
}
