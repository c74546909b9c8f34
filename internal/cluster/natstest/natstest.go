// Package natstest runs NATS servers with JetStream for tests.
package natstest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/copilot-grpc/copilot-grpc/internal/testing/freeport"
)

// startTimeout bounds the start of a server, and the election of a cluster's leader.
const startTimeout = 30 * time.Second

// reconnectWait is the time between attempts of a connection of JetStream.
const reconnectWait = 20 * time.Millisecond

// Server is a NATS server in this process, with its data in a temporary directory. It is safe for concurrent use.
type Server struct {
	tb      testing.TB
	options server.Options

	mu      sync.Mutex
	running *server.Server // nil after Stop
}

// Option changes a server's options.
type Option func(*server.Options)

// Listen makes the server listen on a port of the loopback interface, for tests with several processes.
func Listen(o *server.Options) { o.DontListen, o.Host, o.Port = false, "127.0.0.1", server.RANDOM_PORT }

// SyncAlways makes the server write to the disk before it acknowledges.
func SyncAlways(o *server.Options) { o.SyncAlways = true }

// Start starts a server that ends with the test. Without Listen only InProcessConn reaches it.
func Start(tb testing.TB, options ...Option) *Server {
	tb.Helper()
	o := server.Options{
		ServerName: "n1", DontListen: true, JetStream: true, StoreDir: tb.TempDir(), NoSigs: true, NoLog: true,
	}
	for _, change := range options {
		change(&o)
	}
	s := &Server{tb: tb, options: o}
	tb.Cleanup(s.Stop)
	s.Start()
	return s
}

// Cluster starts a cluster of servers that listen on loopback ports, and waits until JetStream has a leader.
func Cluster(tb testing.TB, size int, options ...Option) []*Server {
	tb.Helper()
	dir := tb.TempDir()
	var routes []*url.URL
	ports := make([]int, size)
	for i := range ports {
		ports[i] = freePort(tb)
		routes = append(routes, &url.URL{Scheme: "nats", Host: fmt.Sprintf("127.0.0.1:%d", ports[i])})
	}
	servers := make([]*Server, size)
	for i, port := range ports {
		o := server.Options{
			ServerName: fmt.Sprintf("n%d", i+1), JetStream: true, StoreDir: filepath.Join(dir, fmt.Sprint(i)),
			NoSigs: true, NoLog: true, Routes: routes, Cluster: server.ClusterOpts{
				Name: "test", Host: "127.0.0.1", Port: port,
			},
		}
		Listen(&o)
		for _, change := range options {
			change(&o)
		}
		servers[i] = &Server{tb: tb, options: o}
		tb.Cleanup(servers[i].Stop)
		servers[i].start(false)
	}
	awaitLeader(tb, servers)
	return servers
}

// awaitLeader waits until the servers of a cluster have elected a leader and know each other.
func awaitLeader(tb testing.TB, servers []*Server) {
	tb.Helper()
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		for _, s := range servers {
			if n := s.current(); n.JetStreamIsLeader() && len(n.JetStreamClusterPeers()) == len(servers) {
				return
			}
		}
	}
	tb.Fatal("the NATS servers elected no leader")
}

func freePort(tb testing.TB) int {
	tb.Helper()
	port, err := freeport.Port()
	if err != nil {
		tb.Fatal(err)
	}
	return port
}

// Start starts a server that was stopped, with its data and its port.
func (s *Server) Start() {
	s.tb.Helper()
	s.start(true)
}

func (s *Server) start(wait bool) {
	s.tb.Helper()
	if !s.options.DontListen && s.options.Port == server.RANDOM_PORT {
		s.options.Port = freePort(s.tb)
	}
	o := s.options
	running, err := server.NewServer(&o)
	if err != nil {
		s.tb.Fatal(err)
	}
	go running.Start()
	if !running.ReadyForConnections(startTimeout) {
		s.tb.Fatal("the NATS server did not start")
	}
	deadline := time.Now().Add(startTimeout)
	for wait && o.JetStream && !running.JetStreamEnabled() {
		if time.Now().After(deadline) {
			s.tb.Fatal("JetStream did not start")
		}
		time.Sleep(time.Millisecond)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = running
}

// Stop stops the server. Its data stay.
func (s *Server) Stop() {
	s.mu.Lock()
	running := s.running
	s.running = nil
	s.mu.Unlock()
	if running != nil {
		running.Shutdown()
		running.WaitForShutdown()
	}
}

func (s *Server) current() *server.Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// InProcessConn connects to the server without a socket. It implements nats.InProcessConnProvider.
func (s *Server) InProcessConn() (net.Conn, error) {
	running := s.current()
	if running == nil {
		return nil, fmt.Errorf("the NATS server was stopped: %w", net.ErrClosed)
	}
	return running.InProcessConn()
}

// JetStream returns JetStream on a connection that ends with the test.
func (s *Server) JetStream() jetstream.JetStream {
	s.tb.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(s), nats.MaxReconnects(-1), nats.ReconnectWait(reconnectWait))
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		s.tb.Fatal(err)
	}
	return js
}

// AwaitCurrent waits until each server of a cluster has all messages of its streams.
func (s *Server) AwaitCurrent() {
	s.tb.Helper()
	js := s.JetStream()
	for deadline := time.Now().Add(startTimeout); !current(s.tb.Context(), js); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.tb.Fatal("a NATS server does not catch up")
		}
	}
}

// current reports whether each stream has a leader, and each of its replicas has all messages.
func current(ctx context.Context, js jetstream.JetStream) bool {
	streams := js.ListStreams(ctx)
	for info := range streams.Info() {
		if info.Cluster == nil || info.Cluster.Leader == "" {
			return false
		}
		for _, r := range info.Cluster.Replicas {
			if r.Offline || !r.Current {
				return false
			}
		}
	}
	return streams.Err() == nil
}

// Dir is the directory with the server's data.
func (s *Server) Dir() string { return s.options.StoreDir }

// URL returns the URL of a server that listens.
func (s *Server) URL() string {
	return fmt.Sprintf("nats://127.0.0.1:%d", s.options.Port)
}
