package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge"
	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/manage"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/internal/offlinemodel"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/forward"
	"github.com/copilot-grpc/copilot-grpc/server/login"
	"github.com/copilot-grpc/copilot-grpc/server/policy"
	"github.com/copilot-grpc/copilot-grpc/server/redact"
	"github.com/copilot-grpc/copilot-grpc/server/rpc"
)

const (
	// stopTimeout bounds how long the rest may take to end once the server has: CLI
	// processes have a grace time and save their sessions in it.
	stopTimeout = 20 * time.Second
	// callGrace is how much longer than streams calls may take to end.
	callGrace = 2 * time.Second
)

// App is a server with everything behind it. Its listeners are open from the start; it
// answers once it runs.
type App struct {
	config Config
	// current is the configuration in force, which Reload replaces; config is what the App
	// was made with.
	current  atomic.Pointer[Config]
	reload   sync.Mutex
	level    *slog.LevelVar // nil: the log has its own
	bridge   *bridge.Bridge
	policy   *policy.Store // nil without one
	logger   *slog.Logger
	warnings *manage.Warnings
	server   *server.Server
	logins   *login.Store // nil without a listener for browsers
	offline  *offlinemodel.Server
	way      runtime.Runner // to the CLI
	probes   bool           // whether the CLI is started when the App runs

	observing observing
	closers   closers
	sealer    sealer
	// member is the replica of a cluster; nil without one. lost is why it ended without a request.
	member *member
	lost   atomic.Pointer[error]
	// hard ends when the server must stop without waiting.
	hard  context.Context
	abort context.CancelFunc
}

// New builds an App. The caller must run or close it. CLI processes are started on demand.
func New(ctx context.Context, c Config, options ...Option) (_ *App, err error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	set := newSettings(options)
	warnings := manage.NewWarnings(redact.Text)
	set.logger = slog.New(warnings.Handler(set.logger.Handler()))
	a := &App{config: c, logger: set.logger, level: set.level, warnings: warnings}
	a.current.Store(&c)
	a.hard, a.abort = context.WithCancel(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			err = errors.Join(err, a.Close())
		}
	}()
	if a.probes = set.probe; a.probes {
		a.observing.probe.set(errNotProbed)
	}
	if err := a.observe(ctx, &set); err != nil {
		return nil, err
	}
	if err := c.checkPermissions(c.trustedPaths(), a.logger); err != nil {
		return nil, err
	}
	files, err := c.check(slog.New(slog.DiscardHandler)) // the messages are logged below
	if err != nil {
		return nil, err
	}
	a.sealer.now.Store(files.sealing)
	profile, err := c.profile()
	if err != nil {
		return nil, err
	}
	var descriptors sync.WaitGroup
	descriptors.Go(func() { rpc.SurfaceServices(true) }) // the server reads them, and another processor may have time
	defer descriptors.Wait()
	var defaults []byte
	if c.OfflineModel != "" {
		if defaults, err = a.startOffline(ctx, &profile); err != nil {
			return nil, err
		}
	}
	if a.policy, err = a.openPolicy(a.logger); err != nil {
		return nil, err
	}
	directory, err := a.openDirectory(ctx, &set, profile)
	if err != nil {
		return nil, err
	}
	b, err := a.newBridge(directory, &set, profile, defaults, files.providers)
	if err != nil {
		return nil, err
	}
	a.bridge = b
	if a.policy != nil {
		a.policy.OnChange(func(*policy.Policy) { b.Fleet().Reconfine() })
	}
	if err := a.watch(b); err != nil {
		return nil, err
	}
	if err := a.listen(ctx, b); err != nil {
		return nil, err
	}
	if a.member != nil {
		a.member.run(b, a.replaced)
		if a.policy != nil {
			a.member.share(b)
		}
	}
	return a, nil
}

// newBridge makes the bridge and the supervisor of its runtimes, which stops first.
func (a *App) newBridge(
	directory bridge.Directory, set *settings, profile runtime.Profile, defaults []byte, providers map[string][]byte,
) (*bridge.Bridge, error) {
	var others func(tenant string) (own, all quota.Use)
	if a.member != nil {
		others = a.member.elsewhere.of
	}
	var supervisor *runtime.Supervisor
	way := runner(&a.config, set)
	a.way = way
	b, err := bridge.New(bridge.Config{
		Runtimes: func(start bridge.Start) bridge.Runtimes {
			supervisor = runtime.NewSupervisor(runtime.SupervisorConfig{
				Start: func(ctx context.Context, p runtime.Profile) (*runtime.Runtime, error) {
					c := a.current.Load()
					return a.observing.started(func() (*runtime.Runtime, error) {
						return start(ctx, runtime.Config{
							Runner: way, Profile: p, Logger: a.logger, MaxRSS: c.KillRSS,
							PingInterval: cmp.Or(c.PingInterval, c.PingTimeout/2), PingTimeout: c.PingTimeout, TestedOnly: c.TestedCLIOnly,
						})
					})
				},
				OnDown:  a.observing.ended,
				Backoff: set.backoff, Breaker: set.breaker, Logger: a.logger,
			})
			return supervisor
		},
		Tuning:            a.config.tuning(providers),
		Profile:           profile,
		Tenant:            a.tenants(profile),
		Limits:            overall(a.policy),
		Elsewhere:         others,
		ProfileFields:     a.config.ProfileFields,
		Homes:             a.config.Homes,
		NodeLabels:        a.config.NodeLabels,
		Warm:              a.warm,
		Dialed:            a.config.Dial != "",
		Defaults:          defaults,
		MaxRequestBytes:   a.config.MaxRequestBytes,
		MaxEphemeralBytes: a.config.MaxEphemeralBytes,
		Directory:         directory,
		Sealer:            &a.sealer,
		MaxMemoryBytes:    a.config.MaxMemoryBytes,
		Raw:               a.config.Raw,
		SingleClient:      a.config.SingleClient,
		Host:              set.host,
		OfflineModel:      a.offline != nil,
		Version:           a.config.Version,
		Observer:          a.observing.observer,
		Audit:             a.observing.sink,
		Warnings:          a.warnings,
		Logger:            a.logger,
	})
	if err != nil {
		return nil, err
	}
	a.observing.supervisor, a.observing.profile = supervisor, profile
	a.closers.add("bridge", func(context.Context) error { b.Close(); return nil })
	a.closers.add("runtimes", supervisor.Stop)
	return b, nil
}

func (a *App) listen(ctx context.Context, b *bridge.Bridge) (err error) {
	site, err := a.web()
	if err != nil {
		return err
	}
	var links rpc.WebLinkBackend
	if a.logins != nil {
		links = a.logins
	}
	var relay *forward.Config
	var replicas rpc.NodeBackend
	empty := func(context.Context) {}
	if a.member != nil {
		a.member.lead(b, a.logger)
		relay = a.member.forward(&a.config.Cluster)
		replicas = nodes{a.member.mover, cmp.Or[audit.Sink](a.observing.sink, audit.Discard)}
		empty = a.member.leave
	}
	a.server, err = server.New(ctx, server.Config{
		Forward:   relay,
		Listen:    a.config.Listen,
		XDS:       a.config.XDS,
		Web:       site,
		Token:     a.config.Token,
		TLS:       a.config.tls(),
		Policy:    a.policy,
		Confining: b.Fleet().Confining,
		Services: rpc.Services(rpc.Backends[*bridge.Attachment]{
			Sessions: b.Sessions, Turns: b.Turns, Shares: b.Shares, Transfers: b.Transfers,
			Events: b.Events, Watch: b.SessionWatch,
			Participants: b.Participants, Callbacks: b.Callbacks, Runtimes: b.Runtimes, CLI: b.CLI,
			WebLinks: links, Nodes: replicas,
		}, a.config.Internal),
		Connections: a.config.connections(),
		Drainer: drainer{
			b, a.config.DrainGrace, a.hard, func() { a.observing.phase.Store(phaseDraining) }, empty, a.logger,
		},
		DrainTimeout:  a.config.DrainGrace + callGrace,
		Telemetry:     a.observing.instruments(&a.config),
		Audit:         a.observing.sink,
		Logger:        a.logger,
		LogRequests:   a.config.LogRequests,
		MaxRecvBytes:  a.config.MaxRequestBytes,
		StopTimeout:   a.config.DrainGrace + callGrace,
		ReturnTimeout: a.config.Cluster.returnTimeout(),
		Ready:         a.observing.ready,
	})
	if err != nil {
		return a.config.unavailable(err)
	}
	a.closers.add("server", func(context.Context) error { return a.server.Close() })
	return nil
}

// Run serves until ctx ends, then ends everything in order. It returns nil if all went
// well. It may be called once, and nothing else is to be called on the App after it.
func (a *App) Run(ctx context.Context) error {
	// The server closes itself when it has run.
	a.closers.forget("server")
	// Abort cuts off what the server waits for, and ends a server that was not told to stop.
	ctx, end := context.WithCancel(ctx)
	defer end()
	release := context.AfterFunc(a.hard, func() {
		_ = a.server.Close()
		end()
	})
	a.observing.phase.Store(phaseRunning)
	probing, stop := context.WithCancel(ctx)
	var probes sync.WaitGroup
	if a.probes {
		probes.Go(func() { a.observing.probe.run(probing, a.askCLI, a.logger) })
	}
	err := a.server.Run(ctx)
	stop()
	probes.Wait()
	release()
	closed := a.Close() // the lease may end meanwhile
	return errors.Join(err, a.ended(), closed)
}

// Abort hastens the end of Run, or of a Close under way: nothing is waited for that can
// be ended by force.
func (a *App) Abort() { a.abort() }

// Close ends an App that is not to run after all.
func (a *App) Close() error {
	ctx, cancel := context.WithTimeout(a.hard, stopTimeout)
	defer cancel()
	err := a.closers.close(ctx)
	a.abort()
	return err
}

// Target is the first address in the form that gRPC clients dial.
func (a *App) Target() string { return a.Targets()[0] }

// Targets are the addresses, in the order of Config.Listen, in the form that gRPC
// clients dial.
func (a *App) Targets() []string {
	var targets []string
	for _, addr := range a.server.Addrs() {
		targets = append(targets, target(addr))
	}
	return targets
}

func target(addr net.Addr) string {
	if addr.Network() == "unix" {
		return unixPrefix + addr.String()
	}
	return addr.String()
}

// WebURL is the URL of the listener for browsers; "" if there is none.
func (a *App) WebURL() string {
	addr := a.server.WebAddr()
	if addr == nil {
		return ""
	}
	if a.config.TLSCert != "" {
		return "https://" + addr.String()
	}
	return "http://" + addr.String()
}

// Token returns the token that callers over TCP must send; "" if none is required.
func (a *App) Token() string { return a.server.Token() }

// OfflineModel is the offline model, nil if there is none.
func (a *App) OfflineModel() *offlinemodel.Server { return a.offline }
