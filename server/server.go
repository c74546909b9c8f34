// Package server is the gRPC server of the bridge: listeners, authentication, authorization, error statuses, health,
// reflection, and an orderly stop. The services of package rpc pass calls to their backends.
//
// A call is authenticated (package identity), gets its tenant and role, and is checked by the method's class and the
// request's fields (package policy). The bridge receives the result as a caller.Caller in the context. The rules for
// guests depend on the session's owner, which only the bridge knows: it asks the server (caller.CheckGuest) when it has
// found the session. A right that is lost ends calls in progress too: each new policy is applied to every admitted call
// (rights.go) and connection (introduction.go).
//
// connections.mu guards the TCP connections, admissions.mu the admitted calls. Run owns the goroutines of the server
// and waits for them.
package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/server/codec"
	"github.com/copilot-grpc/copilot-grpc/server/xds"
)

const (
	// Static windows avoid a PING for nearly every message of a sparse stream. This size receives a request of
	// several megabytes without a pause.
	streamWindow = 1 << 20
	connWindow   = 4 << 20

	// streamWorkers are goroutines that serve one call after another. A new goroutine for each call would grow its
	// stack each time, a seventh of the cost of a short call. When all are busy, for instance with streams, calls get
	// new goroutines.
	streamWorkers = 32

	maxHeaderBytes    = 64 << 10
	handshakeTimeout  = 20 * time.Second
	keepaliveTime     = 30 * time.Second
	keepaliveTimeout  = 10 * time.Second
	minClientPingTime = 10 * time.Second
)

// Server is a gRPC server with its listeners open.
type Server struct {
	config    Config
	listeners []net.Listener
	// grpc serves all listeners, but with xDS only unix sockets: xds serves TCP ports then, and is nil otherwise.
	grpc *grpc.Server
	xds  xds.Server
	// serving has the TCP addresses that wait for the control plane.
	serving serving
	// web serves browsers; nil if there is no listener for them.
	web *site
	// replica relays calls to other replicas and serves theirs; nil without others.
	replica  *replica
	chain    *chain
	health   *health.Server
	gate     *gate
	limiter  *limiter
	reporter *reporter
	// connections are the TCP connections.
	connections *connections
	// ends measures the ends of calls; nil if spans do, or nothing.
	ends stats.Handler
	// certificates are the server's certificates for TCP ports; nil without TLS.
	certificates *certificates

	// leaving ends when the calls of tools and load balancers must end.
	leaving context.Context
	leave   context.CancelFunc
}

// New validates the configuration, opens the listeners and registers the services. The caller must call Run or Close.
func New(ctx context.Context, c Config) (*Server, error) {
	if err := c.complete(); err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	s := &Server{config: c, serving: serving{log: c.Logger}, health: health.NewServer(), gate: newGate(&c), limiter: &limiter{policy: c.Policy},
		reporter: &reporter{log: c.Logger}}
	s.reporter.requests.Store(c.LogRequests)
	if c.Telemetry.Meters != nil && c.Telemetry.Tracers == nil {
		s.ends = s.measured()
	}
	if c.TLS != nil {
		var err error
		if s.certificates, err = newCertificates(c.TLS, c.Policy, c.Logger); err != nil {
			return nil, fmt.Errorf("server: TLS: %w", err)
		}
	}
	s.connections = newConnections(&c)
	if s.certificates != nil && c.Policy != nil {
		s.gate.admissions.trusted, s.connections.trusted = s.certificates.trusted, s.certificates.trusted
		s.certificates.changed = func() {
			s.gate.admissions.check(c.Policy.Current())
			s.connections.check(c.Policy.Current())
		}
	}
	for _, address := range c.Listen {
		l, err := Listen(ctx, address)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("server: %w", err), s.closeListeners())
		}
		s.listeners = append(s.listeners, listener{l, s.connections})
	}
	s.leaving, s.leave = context.WithCancel(context.WithoutCancel(ctx))
	s.chain = &chain{panicked: s.reporter.rescue, layers: []layer{
		{s.meter, metered}, {s.observe, s.observed}, {leave: s.reporter.ended}, {leave: s.audit}, {s.gate.admit, undo},
		{enter: s.count}, {enter: s.limiter.limit}, {enter: s.release, leave: s.describe}, trail}}
	if err := s.newServers(); err != nil {
		return nil, errors.Join(fmt.Errorf("server: %w", err), s.closeListeners())
	}
	s.setHealth(healthv1.HealthCheckResponse_NOT_SERVING)
	s.gate.served, s.limiter.streaming = methodsOf(s.grpc)
	if c.Web != nil {
		var err error
		if s.web, err = s.newSite(ctx, c.Web); err != nil {
			return nil, errors.Join(fmt.Errorf("server: web: %w", err), s.Close())
		}
	}
	if c.Forward != nil {
		var err error
		if s.replica, err = s.newReplica(ctx, c.Forward); err != nil {
			return nil, errors.Join(fmt.Errorf("server: replicas: %w", err), s.Close())
		}
		s.chain.router = s.replica.forwarder
	}
	return s, nil
}

// newServers makes the gRPC servers.
func (s *Server) newServers() error {
	creds, err := newPerNetwork(s.certificates, s.connections, &s.config)
	if err != nil {
		return err
	}
	options := append(s.options(), grpc.Creds(creds))
	s.grpc = grpc.NewServer(options...)
	s.register(checked{s.grpc, s.chain})
	reflection.Register(s.grpc)
	if !s.config.XDS {
		return nil
	}
	for _, l := range s.listeners {
		if l.Addr().Network() != "unix" {
			s.serving.expect(l.Addr())
		}
	}
	if s.xds, err = xds.NewServer(s.serving.change, options...); err != nil {
		return fmt.Errorf("xDS: %w", err)
	}
	s.register(checked{s.xds, s.chain})
	reflection.Register(s.xds)
	return nil
}

// servers returns the gRPC servers.
func (s *Server) servers() []xds.Server {
	if s.xds == nil {
		return []xds.Server{s.grpc}
	}
	return []xds.Server{s.grpc, s.xds}
}

// serverOf returns the gRPC server of a listener.
func (s *Server) serverOf(l net.Listener) xds.Server {
	if s.xds == nil || l.Addr().Network() == "unix" {
		return s.grpc
	}
	return s.xds
}

// register registers the services that all listeners serve.
func (s *Server) register(r grpc.ServiceRegistrar) {
	for _, service := range s.config.Services {
		service.Register(r)
	}
	healthv1.RegisterHealthServer(r, healthService{s.health, s.grpc})
}

// options are the fixed parts of the gRPC server.
func (s *Server) options() []grpc.ServerOption {
	options := append(commonOptions(minClientPingTime),
		grpc.UnaryInterceptor(s.chain.unary),
		grpc.StreamInterceptor(s.chain.stream),
		grpc.MaxRecvMsgSize(s.config.MaxRecvBytes),
		grpc.MaxConcurrentStreams(s.config.MaxConcurrentStreams),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.InTapHandle(s.gate.greet),
	)
	if spans := s.spanned(); spans != nil {
		options = append(options, grpc.StatsHandler(spans))
	}
	return options
}

// commonOptions are those of the listeners for callers and for other replicas.
func commonOptions(minPingTime time.Duration) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(codec.New()),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.ConnectionTimeout(handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPingTime, PermitWithoutStream: true}),
		grpc.WaitForHandlers(true),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.UnknownServiceHandler(unknownMethod),
	}
}

// unknownMethod refuses unknown methods with a reason.
func unknownMethod(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	return fault.New(fault.MethodUnknown, "the server has no method %q", method).With("method", method)
}

// Addrs returns the addresses that the server listens on, in the order of Config.Listen.
func (s *Server) Addrs() []net.Addr {
	addrs := make([]net.Addr, len(s.listeners))
	for i, l := range s.listeners {
		addrs[i] = l.Addr()
	}
	return addrs
}

// Token returns the token that callers over TCP must send; "" if none is required.
func (s *Server) Token() string { return s.config.Token }

// Run serves until ctx ends or a listener fails, and then stops in order: health reports NOT_SERVING, Drainer ends
// its streams, calls in progress get StopTimeout, and the rest is cancelled. It returns nil after an orderly stop. It
// may be called once.
func (s *Server) Run(ctx context.Context) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	failures := make(chan error, len(s.listeners)+2)
	serve := func(l net.Listener, serve func(net.Listener) error, stopped error) {
		err := serve(l)
		switch {
		case errors.Is(err, stopped):
			err = nil
		case err != nil:
			err = fmt.Errorf("server: serve %q: %w", l.Addr(), err)
			fail(err)
		}
		failures <- err
	}
	for _, l := range s.listeners {
		go serve(l, s.serverOf(l).Serve, grpc.ErrServerStopped)
	}
	serving := len(s.listeners)
	if s.web != nil {
		serving++
		go serve(s.web.listener, s.web.serve, http.ErrServerClosed)
	}
	if s.replica.listens() {
		serving++
		go serve(s.replica.listener, s.replica.grpc.Serve, grpc.ErrServerStopped)
	}
	defer s.connections.close()
	defer s.replica.close()
	defer s.watch(ctx).Wait()
	if s.config.XDS {
		defer s.serving.watch()()
	}
	s.followReady(ctx)
	errs := []error{s.drain(context.WithoutCancel(ctx))}
	if err := s.stop(); err != nil {
		// Serve returns after the handlers, so its result is not awaited either.
		return errors.Join(append(errs, err)...)
	}
	for range serving {
		errs = append(errs, <-failures)
	}
	return errors.Join(errs...)
}

// watch reloads files that change on disk, until ctx ends.
func (s *Server) watch(ctx context.Context) *sync.WaitGroup {
	var watches sync.WaitGroup
	if s.certificates != nil {
		watches.Go(func() { s.certificates.watch(ctx) })
	}
	if s.config.Policy != nil {
		watches.Go(func() { s.config.Policy.Watch(ctx) })
	}
	if s.replica.listens() {
		watches.Go(func() { s.replica.credentials.Watch(ctx) })
	}
	return &watches
}

// methodsOf returns the full names of all methods of a server, and of the streaming ones.
func methodsOf(r reflection.ServiceInfoProvider) (all, streaming map[string]bool) {
	all, streaming = map[string]bool{}, map[string]bool{}
	for service, info := range r.GetServiceInfo() {
		for _, m := range info.Methods {
			name := "/" + service + "/" + m.Name
			all[name] = true
			if m.IsServerStream || m.IsClientStream {
				streaming[name] = true
			}
		}
	}
	return all, streaming
}

// drain tells clients that the server is about to stop.
func (s *Server) drain(ctx context.Context) error {
	s.health.Shutdown()
	defer s.leave()
	s.replica.drain()
	if s.config.Drainer == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.DrainTimeout)
	defer cancel()
	if err := s.config.Drainer.Drain(ctx); err != nil {
		return fmt.Errorf("server: drain: %w", err)
	}
	return nil
}

// stop waits for the calls in progress, and cancels them after StopTimeout. It returns an error if a handler
// still does not return within ReturnTimeout.
func (s *Server) stop() error {
	graceful, forced := []func(){s.web.shutdown, s.replica.shutdown}, []func(){s.web.close, s.replica.stop}
	for _, g := range s.servers() {
		graceful, forced = append(graceful, g.GracefulStop), append(forced, g.Stop)
	}
	ended := afterAll(graceful)
	if closedWithin(ended, s.config.StopTimeout) {
		return nil
	}
	s.config.Logger.Warn("cancelled calls that had not ended before the stop timeout",
		slog.Duration("stop_timeout", s.config.StopTimeout))
	cancelled := afterAll(forced)
	if closedWithin(cancelled, s.config.ReturnTimeout) && closedWithin(ended, s.config.ReturnTimeout) {
		return nil
	}
	return errors.New("server: handlers still run after their calls were cancelled")
}

// afterAll calls functions in parallel, and returns a channel that is closed when all have returned.
func afterAll(functions []func()) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		var running sync.WaitGroup
		for _, f := range functions {
			running.Go(f)
		}
		running.Wait()
	}()
	return done
}

// closedWithin waits for c and reports whether it was closed in time.
func closedWithin(c <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-c:
		return true
	case <-timer.C:
		return false
	}
}

// Close closes a server that was never run.
func (s *Server) Close() error {
	s.leave()
	s.web.close()
	for _, g := range s.servers() {
		g.Stop()
	}
	s.replica.stop()
	s.replica.close()
	s.connections.close()
	return s.closeListeners()
}

// closeListeners closes the listeners, the last one first.
func (s *Server) closeListeners() error {
	var errs []error
	for i := len(s.listeners) - 1; i >= 0; i-- {
		errs = append(errs, s.listeners[i].Close())
	}
	return errors.Join(errs...)
}

// setHealth sets the state of the server and of each of its services.
func (s *Server) setHealth(state healthv1.HealthCheckResponse_ServingStatus) {
	s.health.SetServingStatus("", state)
	for name := range s.grpc.GetServiceInfo() {
		s.health.SetServingStatus(name, state)
	}
}

// release ends the calls of tools and load balancers when the server stops: they watch its health without an end, and
// stop would wait for them.
func (s *Server) release(ctx context.Context, c *call) (context.Context, error) {
	if !strings.HasPrefix(c.method, infrastructure) {
		return ctx, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.leaving, cancel)
	c.atEnd(func(err error) error {
		stop()
		cancel()
		return err
	})
	return ctx, nil
}
