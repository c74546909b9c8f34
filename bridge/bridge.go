// Package bridge serves the calls of copilot.bridge.v1 with sessions of the Copilot CLI. It does not use gRPC:
// requests are messages, errors are faults, and streams write to a sink.
//
// A Bridge composes the parts, each of which is a package. Services has the parts that serve calls. The Bridge
// owns the background goroutines through its shutdown.Coordinator; Close ends them.
package bridge

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/manage"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"

	"github.com/copilot-grpc/copilot-grpc/bridge/attach"
	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet"
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet/placement"
	"github.com/copilot-grpc/copilot-grpc/bridge/idempotency"
	"github.com/copilot-grpc/copilot-grpc/bridge/inbox"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/passthrough"
	"github.com/copilot-grpc/copilot-grpc/bridge/prompt"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota/admission"
	"github.com/copilot-grpc/copilot-grpc/bridge/request"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	"github.com/copilot-grpc/copilot-grpc/bridge/stream"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/bridge/transfer"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Defaults of Config.
const (
	DefaultMaxPromptBytes     = 4 << 20
	DefaultMaxAttachmentBytes = 64 << 20
)

// Config configures a bridge. Runtimes is required.
type Config struct {
	// Tuning may change while the bridge runs.
	Tuning
	// Runtimes returns the supervisor of CLI processes, which starts them by start.
	Runtimes func(start Start) Runtimes
	// Profile is the default profile of the runtimes of the host's own tenant.
	Profile runtime.Profile
	// ProfileFields are the members of RuntimeProfile that callers may set. Nil is
	// tenancy.DefaultProfileFields.
	ProfileFields []string
	// Homes are the directories that home_name stands for.
	Homes map[string]string
	// NodeLabels are the labels of this server, by which sessions choose their servers.
	NodeLabels map[string]string
	// Tenant returns how a tenant other than the host's own is treated; false if there is none
	// of that name. Nil: there are no other tenants.
	Tenant func(name string) (tenancy.Tenant, bool)
	// Limits returns what all tenants together may use. Nil: only the bounds of the queues.
	Limits func() quota.Limits
	// Elsewhere returns what a tenant, and all tenants together, use at other servers of a cluster, which count for the
	// limits too. It must not wait. Nil: there are none.
	Elsewhere func(tenant string) (own, all quota.Use)
	// Warm returns, by tenant, how many runtimes of its default profile always have room for a session, so that a new
	// session need not wait for a start. Nil: none.
	Warm func() map[string]int
	// Dialed reports that the one runtime is a CLI server that the bridge does not start.
	Dialed bool
	// Defaults are members of the configuration of sessions that do not set them, such as the
	// provider of an offline model: a JSON object.
	Defaults []byte
	// MaxRequestBytes is the server's bound of a message, which GetServerInfo reports.
	MaxRequestBytes int
	// MaxEphemeralBytes bounds the ephemeral part of each journal.
	MaxEphemeralBytes int
	// Directory stores what outlives the bridge; nil leaves everything in memory.
	Directory Directory
	// Sealer encrypts the credentials of sessions, which are then stored in Directory. Without it they are not stored:
	// after a restart callers give them again.
	Sealer sessions.Sealer
	// MaxMemoryBytes bounds the events of all sessions in memory; default
	// journal.DefaultMaxMemoryBytes.
	MaxMemoryBytes int
	// Raw switches RawService on.
	Raw bool
	// SingleClient reports that the bridge serves one program, which alone uses the CLI processes. If the
	// program requests the CLI's own behaviour, it may also call methods that change a whole
	// process. Its sessions may be open in other processes of the program.
	SingleClient bool
	// Host receives what the CLI calls about the AHP hosts of a sole program. Nil: such requests are refused.
	Host HostCallbacks
	// OfflineModel reports that a scripted model replaces real ones.
	OfflineModel bool
	// Version is the version of this program.
	Version string
	// Observer records turns, callbacks and rejections. Nil records nothing.
	Observer *observe.Observer
	// Audit receives the audit log. Default: audit.Discard.
	Audit audit.Sink
	// Warnings keeps the log's warnings for RuntimeService.WatchServerLog. Nil: the server has none to show.
	Warnings *manage.Warnings
	// Logger receives events without a caller. Default: slog.DiscardHandler.
	Logger *slog.Logger
}

// Services are the parts of a bridge that serve calls. Their methods may be called from any
// goroutine. Package server/rpc serves them over gRPC.
type Services struct {
	Sessions     *manage.Sessions
	Turns        *prompt.Service
	Shares       *manage.Shares
	SessionWatch *stream.SessionWatch
	Callbacks    *inbox.Service
	Runtimes     *manage.Runtimes
	Events       *stream.Service
	Participants *attach.Service
	CLI          *passthrough.Service
	Transfers    *transfer.Service
}

// Names for programs that embed a bridge.
type (
	// Start starts a runtime whose connection the bridge serves.
	Start = fleet.Start
	// HostCallbacks is documented there.
	HostCallbacks = fleet.HostCallbacks
	// Runtimes starts and restarts CLI processes.
	Runtimes = fleet.Supervisor
	// Directory stores what outlives a bridge: its sessions, their state and their journals.
	Directory = sessions.Directory
	// Attachment is a participant's stream.
	Attachment = attach.Attachment
)

// Bridge serves the calls. Its methods may be called from any goroutine.
type Bridge struct {
	// Services are set by New.
	Services

	cfg        Config
	log        *slog.Logger
	codec      *wire.Codec
	tenants    *tenancy.Tenants
	tuned      atomic.Pointer[tuned]
	operations *idempotency.Runner

	shutdown  *shutdown.Coordinator
	admission *admission.Controller

	budget *journal.Budget
	store  *sessions.Store
	fleet  *fleet.Fleet
}

// New returns a bridge. The caller must Close it.
func New(cfg Config) (*Bridge, error) {
	cfg.setDefaults()
	c := wire.New(cfg.Logger)
	var defaults jsonobj.Object
	if len(cfg.Defaults) > 0 {
		var err error
		if defaults, err = jsonobj.Parse(cfg.Defaults); err != nil {
			return nil, fault.Wrap(err, fault.InvalidField, "session defaults")
		}
	}
	b := &Bridge{
		cfg: cfg, log: cfg.Logger, codec: c,
		budget: journal.NewBudget(cfg.MaxMemoryBytes), shutdown: shutdown.New(),
		tenants: &tenancy.Tenants{
			Host: tenancy.Tenant{
				Profile: cfg.Profile, ProfileFields: cfg.ProfileFields, Homes: cfg.Homes, Ambient: true, Confined: true,
			},
			Lookup: cfg.Tenant, Dialed: cfg.Dialed,
		},
	}
	b.compose(defaults)
	if err := b.Tune(cfg.Tuning); err != nil {
		b.shutdown.Close()
		return nil, err
	}
	if err := errors.Join(b.restoreOperations(), b.store.Restore()); err != nil {
		b.shutdown.Close()
		return nil, fault.Wrap(err, fault.Internal, "restoring the sessions")
	}
	b.Go(func(context.Context) { c.Prepare() }) // beside the rest of the start
	b.Go(b.fleet.Run)
	b.Go(b.budget.Run)
	b.Go(b.store.Run)
	b.Go(b.operations.Sweep)
	// The callbacks of these sessions waited when the bridge ended.
	b.fleet.Revive(slices.DeleteFunc(b.store.Sessions(), func(s *session.Session) bool { return !s.Awaited() }))
	return b, nil
}

// compose makes the parts.
func (b *Bridge) compose(defaults jsonobj.Object) {
	cfg := &b.cfg
	b.store = sessions.New(sessions.Config{
		Directory: cfg.Directory, Session: b.sessionConfig, Tenants: b.tenants, Defaults: defaults,
		Providers: b.providersOf, Sealer: cfg.Sealer, Forget: b.forget, Go: b.Go, Log: cfg.Logger,
		Host:       func(e *sessions.Entry) session.Host { return host{b, e} },
		SetProfile: func(e *sessions.Entry, p runtime.Profile) (undo func()) { return b.fleet.SetProfile(e, p) },
	})
	b.admission = admission.New(admission.Config{
		Store: b.store, Tenants: b.tenants, Overall: cfg.Limits,
		MaxPromptBytes: func() int { return b.tuned.Load().MaxPromptBytes }, Elsewhere: cfg.Elsewhere,
	})
	parser := request.New(request.Config{
		Codec: b.codec, Defaults: defaults, Providers: b.providersOf, CheckPrompt: b.admission.CheckPrompt,
		NodeLabels: cfg.NodeLabels,
		Ambient:    func(tenant string) bool { t, ok := b.tenants.Get(tenant); return ok && t.Ambient },
	})
	b.SessionWatch = stream.NewSessionWatch(b.store, b.shutdown, b.codec)
	b.fleet = fleet.New(fleet.Config{
		Supervise: cfg.Runtimes, Tenants: b.tenants, Shutdown: b.shutdown, Store: b.store, Admission: b.admission,
		Changed: b.SessionWatch.Changed, Notified: b.SessionWatch.Notified, Warm: cfg.Warm, SweepInterval: cfg.sweepInterval(),
		Tuning: cfg.Tuning.Tuning, Host: cfg.Host, Log: b.log,
	})
	b.operations = idempotency.New(b.shutdown, b.admission.Remembered, b.log)
	b.Events = stream.New(b.store, b.codec, b.shutdown)
	b.Callbacks = inbox.New(b.store, b.codec, b.operations, b.shutdown, b.log)
	b.Shares = manage.NewShares(b.store, manage.ShareWatchers{Sessions: b.SessionWatch, Pending: b.Callbacks}, cfg.Audit)
	b.Runtimes = manage.NewRuntimes(manage.RuntimesConfig{
		Fleet: b.fleet, Tenants: b.tenants, Codec: b.codec, Shutdown: b.shutdown, Audit: cfg.Audit,
		Limits: b.limits, Warnings: cfg.Warnings, Durable: cfg.Directory != nil,
		Version: cfg.Version, Raw: cfg.Raw, OfflineModel: cfg.OfflineModel, SingleClient: cfg.SingleClient,
	})
	b.Sessions = manage.NewSessions(manage.SessionsConfig{
		Store: b.store, Parser: parser, Tenants: b.tenants, Runtimes: b.fleet, Admission: b.admission,
		Watchers: b.SessionWatch, Operations: b.operations, Shutdown: b.shutdown, Codec: b.codec, Audit: cfg.Audit,
	})
	b.Transfers = transfer.New(transfer.Config{
		Store: b.store, Sessions: b.Sessions, Runtimes: b.fleet, Tenants: b.tenants, Parser: parser, Codec: b.codec,
		Shutdown: b.shutdown, Admission: b.admission, Audit: cfg.Audit, Log: b.log,
	})
	b.Turns = prompt.New(prompt.Config{
		Sessions: b.store, Opener: b.Sessions, Parser: parser, Streams: b.Events,
		Operations: b.operations, Shutdown: b.shutdown, Admission: b.admission, Log: cfg.Logger,
		MaxAttachmentBytes: func() int { return b.tuned.Load().MaxAttachmentBytes },
	})
	b.CLI = passthrough.New(passthrough.Config{
		Sessions: b.store, Opener: b.Sessions, Sender: b.Turns, Admission: b.admission, Tenants: b.tenants,
		Runtimes: b.fleet, Codec: b.codec, Operations: b.operations, Shutdown: b.shutdown, Log: b.log,
		Raw: cfg.Raw, SingleClient: cfg.SingleClient,
	})
	b.Participants = attach.New(attach.Config{
		Sessions: b.store, Opener: b.Sessions, Parser: parser, Sender: b.Turns, Exactly: b.CLI, Callbacks: b.Callbacks,
		Admission: b.admission, Streams: b.Events, Operations: b.operations, Shutdown: b.shutdown, Codec: b.codec,
		Observer: cfg.Observer, Audit: cfg.Audit, Log: cfg.Logger,
	})
}

// sessionConfig returns the configuration of a tenant's new sessions.
func (b *Bridge) sessionConfig(tenant string) session.Config {
	tuned := b.tuned.Load()
	return session.Config{
		Encode: b.codec.Event, MaxEphemeralBytes: b.cfg.MaxEphemeralBytes, CallbackTimeout: tuned.CallbackTimeout,
		Bounds: tuned.Turns, Budget: b.budget, Room: b.admission.Room(tenant), Observer: b.cfg.Observer,
		Audit: b.cfg.Audit, Shared: b.cfg.SingleClient,
	}
}

// limits returns the limits for a tenant's calls.
func (b *Bridge) limits(tenant string) *bridgev1.Limits {
	tuned := b.tuned.Load()
	return &bridgev1.Limits{
		MaxPromptBytes: int64(b.admission.MaxPrompt(tenant)), MaxAttachmentBytes: int64(tuned.MaxAttachmentBytes),
		MaxRequestBytes: int64(b.cfg.MaxRequestBytes), CallbackTimeout: durationpb.New(tuned.CallbackTimeout),
		MaxEphemeralBytes: int64(b.cfg.MaxEphemeralBytes),
	}
}

// providersOf returns the server's model providers that a tenant's sessions may name now.
func (b *Bridge) providersOf(tenant string) session.Providers {
	out := session.Providers{}
	for name, text := range b.tuned.Load().providers {
		if b.tenants.MayName(tenant, name) {
			out[name] = text
		}
	}
	return out
}

// forget removes what other parts have of a session that leaves memory.
func (b *Bridge) forget(key string) {
	b.fleet.Forget(key)
	b.CLI.Forget(key)
	b.Turns.Forget(key)
}

// restoreOperations restores the operations of the bridge's previous run.
func (b *Bridge) restoreOperations() error {
	if b.cfg.Directory == nil {
		return nil
	}
	log, requests, err := b.cfg.Directory.Requests()
	if err == nil {
		b.operations.Restore(log, requests)
	}
	return err
}

// setDefaults sets the defaults of members that are not set.
func (c *Config) setDefaults() {
	c.MaxPromptBytes = cmp.Or(c.MaxPromptBytes, DefaultMaxPromptBytes)
	c.MaxAttachmentBytes = cmp.Or(c.MaxAttachmentBytes, DefaultMaxAttachmentBytes)
	c.CallbackTimeout = cmp.Or(c.CallbackTimeout, callback.DefaultTimeout)
	c.MaxEphemeralBytes = cmp.Or(c.MaxEphemeralBytes, journal.DefaultMaxEphemeralBytes)
	c.MaxMemoryBytes = cmp.Or(c.MaxMemoryBytes, journal.DefaultMaxMemoryBytes)
	c.IdleUnload = cmp.Or(c.IdleUnload, fleet.DefaultIdleUnload)
	c.ConfinementGrace = cmp.Or(c.ConfinementGrace, fleet.DefaultConfinementGrace)
	c.Turns.Stall = cmp.Or(c.Turns.Stall, turn.DefaultStall)
	c.Turns.ModelCall = cmp.Or(c.Turns.ModelCall, turn.DefaultModelCall)
	c.Turns.Rest = cmp.Or(c.Turns.Rest, turn.DefaultRest)
	if c.Limits == nil {
		c.Limits = func() quota.Limits { return quota.Limits{} }
	}
	if c.Observer == nil {
		c.Observer = observe.Silent()
	}
	if c.Audit == nil {
		c.Audit = audit.Discard
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Dialed {
		c.Placement.MaxSessions = math.MaxInt
	}
	c.Placement.Idle = cmp.Or(c.Placement.Idle, placement.DefaultIdle)
}

// Drain asks every stream to end, and ends the remaining ones after grace.
func (b *Bridge) Drain(grace time.Duration) { b.shutdown.Drain(grace) }

// RunningTurns counts the sessions whose turn runs.
func (b *Bridge) RunningTurns() (n int) {
	for _, e := range b.store.Usable() {
		if e.Session.Turns().Running() {
			n++
		}
	}
	return n
}

// AwaitTurns waits for the end of the turns that run, for as long as ctx lasts.
func (b *Bridge) AwaitTurns(ctx context.Context) {
	for _, e := range b.store.Usable() {
		if e.Session.Turns().AwaitRest(ctx) != nil {
			return
		}
	}
}

// Close ends what runs in the background and waits for it. Streams and calls must have
// ended before.
func (b *Bridge) Close() {
	b.shutdown.Close()
	b.store.Close()
	if err := b.operations.Close(); err != nil {
		b.log.Error("remembered requests not closed", "error", err)
	}
}

// Store returns the sessions: in the process that embeds the bridge, for what no call does, such as saving them now.
func (b *Bridge) Store() *sessions.Store { return b.store }

// Fleet returns the CLI processes in use.
func (b *Bridge) Fleet() *fleet.Fleet { return b.fleet }

// Go runs f in the background until the bridge closes.
func (b *Bridge) Go(f func(ctx context.Context)) bool { return b.shutdown.Go(f) }
