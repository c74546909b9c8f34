package app

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	goruntime "runtime"
	"runtime/debug"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge"
	bridgeaudit "github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/internal/audit"
	"github.com/copilot-grpc/copilot-grpc/internal/setting"
	"github.com/copilot-grpc/copilot-grpc/internal/telemetry"
	"github.com/copilot-grpc/copilot-grpc/server"
	"github.com/copilot-grpc/copilot-grpc/server/admin"
	"github.com/copilot-grpc/copilot-grpc/server/redact"
)

// AuditStderr is the Config.AuditLog that stands for the standard error stream.
const AuditStderr = "stderr"

// observeRows are the settings of how the server is looked at.
func (c *Config) observeRows() []setting.Row {
	return []setting.Row{
		fixed("admin_listen", &c.AdminListen,
			"`address` of the admin listener (health, readiness, metrics, profiles, channelz): unix:PATH, which only "+
				"the server's user can open, or HOST:PORT with admin_token (default: none)"),
		secret("admin_token", &c.AdminToken,
			"bearer `token` of requests to a TCP address of the admin listener, at least 16 characters; /healthz and "+
				"/readyz require none"),
		fixed("admin_wide", &c.AdminWide, "allow an admin address that other machines can reach"),
		fixed("otlp_endpoint", &c.OTLPEndpoint, "`URL` to which spans and metrics are sent by OTLP; OpenTelemetry's environment variables configure the rest, "+
			"and an endpoint there has the same effect (default: OTEL_EXPORTER_OTLP_ENDPOINT, or else nothing is sent)"),
		fixed("metrics_by_tenant", &c.MetricsByTenant, "`tenants` that metrics of sessions, turns, tokens and cost name, at most "+
			strconv.Itoa(observe.MaxTenants)+"; all others are \"other\". Repeatable, or separated by commas (default: no such metrics)"),
		fixed("audit_log", &c.AuditLog, "`file` to append the audit log to, or \""+AuditStderr+"\" (default: none)"),
	}
}

// checkObserving tells what is wrong with them.
func (c *Config) checkObserving() error {
	c.OTLP = c.OTLP || c.OTLPEndpoint != ""
	if c.AdminListen != "" {
		if err := admin.Check(c.AdminListen, c.AdminToken, c.AdminWide); err != nil {
			return wrong("admin_listen", err)
		}
	}
	if n := len(c.MetricsByTenant); n > observe.MaxTenants {
		return wrongf("metrics_by_tenant", "it has %d tenants, more than %d", n, observe.MaxTenants)
	}
	if err := telemetry.CheckEndpoint(c.OTLPEndpoint); err != nil {
		return wrong("otlp_endpoint", err)
	}
	return wrong("OTEL_EXPORTER_OTLP_PROTOCOL", telemetry.CheckProtocol(c.OTLPProtocol))
}

// flushTimeout bounds sending the remaining spans and metrics, because there may be no receiver.
const flushTimeout = 3 * time.Second

// observing is how the app is looked at.
type observing struct {
	observer  *observe.Observer
	telemetry *telemetry.Telemetry
	audit     *audit.Log
	sink      bridgeaudit.Sink // audit, or nil if there is none
	admin     *admin.Server

	// phase is what the app is at.
	phase atomic.Int32
	// supervisor is set before the app runs, profile with it.
	supervisor *runtime.Supervisor
	profile    runtime.Profile
	// cliVersion is the version of the CLI process that started last; nil before the first.
	cliVersion atomic.Pointer[string]
	// probe tells whether the CLI could be started at all.
	probe probe
}

// The phases of an app.
const (
	phaseStarting int32 = iota
	phaseRunning
	phaseDraining
)

var (
	errStarting = errors.New("starting")
	errDraining = errors.New("draining")
)

// observe makes what looks at the app. It comes before all that it looks at, and ends after.
func (a *App) observe(ctx context.Context, set *settings) (err error) {
	o, c := &a.observing, &a.config
	o.telemetry, err = telemetry.New(ctx, telemetry.Config{
		OTLP: c.OTLP, Endpoint: c.OTLPEndpoint, Protocol: c.OTLPProtocol, Prometheus: c.AdminListen != "",
		Version: c.Version, Redact: redact.Text, Spans: set.spans,
	})
	if err != nil {
		return err
	}
	a.closers.add("telemetry", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, flushTimeout)
		defer cancel()
		if err := o.telemetry.Shutdown(ctx); err != nil {
			a.logger.Warn("sending telemetry failed", slog.String("error", redact.Text(err.Error())))
		}
		return nil
	})
	if o.observer, err = observe.New(observe.Config{
		Tracers: o.telemetry.Tracers, Meters: o.telemetry.Meters,
		Tenants: c.MetricsByTenant,
	}); err != nil {
		return err
	}
	if err := o.observer.Built(builtFrom(c.Version), o.lastCLI); err != nil {
		return err
	}
	if c.AdminListen != "" {
		o.admin, err = admin.New(ctx, admin.Config{
			Listen: c.AdminListen, Token: c.AdminToken, Wide: c.AdminWide, Metrics: o.telemetry.Page, Ready: a.ready,
			Logger: a.logger,
		})
		if err != nil {
			return a.config.unavailable(err)
		}
		a.closers.add("admin listener", func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, flushTimeout)
			defer cancel()
			return o.admin.Close(ctx)
		})
	}
	return a.openAudit()
}

func (a *App) openAudit() error {
	var to io.Writer = os.Stderr
	switch path := a.config.AuditLog; path {
	case "":
		return nil
	case AuditStderr:
	default:
		file, err := audit.OpenFile(path)
		if err != nil {
			return err
		}
		a.closers.add("audit file", func(context.Context) error { return file.Close() })
		to = file
	}
	a.observing.audit = audit.New(to, func(err error) {
		a.logger.Error("writing the audit log failed", slog.Any("error", err))
	}, a.config.Cluster.attrs()...)
	a.observing.sink = a.observing.audit
	a.closers.add("audit log", func(context.Context) error { a.observing.audit.Close(); return nil })
	return nil
}

// watch has figures read from where they are counted.
func (a *App) watch(b *bridge.Bridge) error {
	stop, err := a.observing.observer.Collect(b.Metrics, a.observing.figures)
	if err != nil {
		return err
	}
	a.closers.add("figures", func(context.Context) error { return stop() })
	return nil
}

// states are all states of CLI processes, so that states without a process are reported as zero.
var states = []runtime.State{runtime.StateStarting, runtime.StateReady, runtime.StateStopping, runtime.StateBackoff,
	runtime.StateBroken}

// figures puts what no bridge counts.
func (o *observing) figures(put observe.Put) {
	counts := map[runtime.State]int64{}
	for _, status := range o.supervisor.List() {
		counts[status.State]++
	}
	for _, state := range states {
		put(observe.Runtimes, string(state), counts[state])
	}
	if o.audit == nil {
		return
	}
	written, dropped, failed, queued := o.audit.Counts()
	put(observe.AuditEntries, "written", written)
	put(observe.AuditEntries, "dropped", dropped)
	put(observe.AuditEntries, "failed", failed)
	put(observe.AuditQueue, "", queued)
}

// ready says why the app should get no calls now.
func (a *App) ready() error {
	if err := a.observing.ready(); err != nil {
		return err
	}
	return a.server.Serving()
}

// ready says what of the app itself should keep calls away now. Only the server's own profile counts: what
// a tenant's runtimes come to is the tenant's affair.
func (o *observing) ready() error {
	switch o.phase.Load() {
	case phaseStarting:
		return errStarting
	case phaseDraining:
		return errDraining
	}
	if err := o.probe.err(); err != nil {
		return err
	}
	own := o.profile.Hash()
	for _, status := range o.supervisor.List() {
		if status.State == runtime.StateBroken && status.Profile.Hash() == own && time.Now().Before(status.RetryAt) {
			return errors.New("the copilot CLI crashes repeatedly")
		}
	}
	return nil
}

// started measures the start of a CLI process.
func (o *observing) started(start func() (*runtime.Runtime, error)) (*runtime.Runtime, error) {
	began := time.Now()
	rt, err := start()
	o.observer.RuntimeStarted(time.Since(began), err)
	if err == nil {
		version := rt.Info().CLIVersion
		o.cliVersion.Store(&version)
	}
	return rt, err
}

func (o *observing) lastCLI() string {
	if version := o.cliVersion.Load(); version != nil {
		return *version
	}
	return ""
}

// builtFrom returns what this program was built from. A build outside of a repository, as in a container, has no revision.
func builtFrom(version string) observe.Build {
	b := observe.Build{Version: version, GoVersion: goruntime.Version()}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				b.Revision = s.Value
			}
		}
	}
	return b
}

func (o *observing) ended(d runtime.Down) { o.observer.RuntimeEnded(d.Cause, d.Restart) }

// instruments is what the server tells.
func (o *observing) instruments(c *Config) *server.Telemetry {
	t := &server.Telemetry{Observer: o.observer, Tracers: o.telemetry.Tracers}
	if c.OTLP || c.AdminListen != "" {
		t.Meters = o.telemetry.Meters
	}
	return t
}

// Admin is the address of the admin listener, nil if there is none.
func (a *App) Admin() net.Addr {
	if a.observing.admin == nil {
		return nil
	}
	return a.observing.admin.Addr()
}
