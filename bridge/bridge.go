// Package bridge puts the Copilot CLI's sessions behind the calls of
// copilot.bridge.v1. It knows nothing of gRPC: calls come as messages, errors go as
// faults, streams go to a sink.
//
// One file per group of calls; what a single session is and does is in package session.
package bridge

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/admission"
	"github.com/copilot-grpc/copilot-grpc/bridge/answer"
	"github.com/copilot-grpc/copilot-grpc/bridge/attach"
	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/broadcast"
	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/fleet"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/operation"
	"github.com/copilot-grpc/copilot-grpc/bridge/passthrough"
	"github.com/copilot-grpc/copilot-grpc/bridge/placement"
	"github.com/copilot-grpc/copilot-grpc/bridge/position"
	"github.com/copilot-grpc/copilot-grpc/bridge/quota"
	"github.com/copilot-grpc/copilot-grpc/bridge/registry"
	"github.com/copilot-grpc/copilot-grpc/bridge/runtime"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	"github.com/copilot-grpc/copilot-grpc/bridge/shell"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	"github.com/copilot-grpc/copilot-grpc/bridge/stream"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
)

// Defaults of Config.
const (
	DefaultMaxPromptBytes     = 4 << 20
	DefaultMaxAttachmentBytes = 64 << 20
)

// Config is what a bridge is made with.
type Config struct {
	// Runtimes returns the supervisor of CLI processes, which starts them by start.
	Runtimes func(start Start) Runtimes
	// Profile is what runtimes are like unless a caller says otherwise.
	Profile runtime.Profile
	// ProfileFields are the members of RuntimeProfile that callers may set. Nil is
	// tenancy.DefaultProfileFields.
	ProfileFields []string
	// Homes are the directories that home_name stands for.
	Homes map[string]string
	// Tenant says how a tenant other than the host's own is treated; false when there is
	// none of that name. Nil: there are none.
	Tenant func(name string) (tenancy.Tenant, bool)
	// Limits are those of everybody together. Nil: none beside the bounds of the parts.
	Limits func() quota.Limits
	// Placement says how sessions share runtimes.
	Placement placement.Config
	// Dialed says that the runtime is a CLI server that others run: there is one, as it is.
	Dialed bool
	// Defaults are members of a session's configuration for sessions that do not set
	// them, as a JSON object: such as the provider of an offline model.
	Defaults []byte
	// Providers are model providers that callers may name (provider_ref), each a JSON object
	// as the CLI takes it.
	Providers map[string][]byte
	// MaxPromptBytes bounds a prompt's text: the CLI's memory grows to gigabytes with
	// prompts of some tens of MiB.
	MaxPromptBytes int
	// MaxAttachmentBytes bounds an attachment sent in pieces.
	MaxAttachmentBytes int
	// MaxRequestBytes is what the server lets a message have; it is only told.
	MaxRequestBytes int
	// MaxEphemeralBytes bounds the ephemeral part of each journal.
	MaxEphemeralBytes int
	// CallbackTimeout is how long callbacks wait for an answer.
	CallbackTimeout time.Duration
	// Turns bounds turns in which nothing happens.
	Turns turn.Bounds
	// IdleUnload is how long nothing goes on in a session before it is unloaded.
	IdleUnload time.Duration
	// ConfinementGrace is how long a process may go on whose confinement a policy has changed.
	ConfinementGrace time.Duration
	// Wear says when runtimes are replaced.
	Wear fleet.Wear
	// Directory is where the bridge keeps what outlives it; without one that is nowhere.
	Directory Directory
	// MaxMemoryBytes bounds the events of all sessions in memory; default
	// journal.DefaultMaxMemoryBytes.
	MaxMemoryBytes int
	// Raw switches RawService on.
	Raw bool
	// Sole says that the bridge serves one program, whose the CLI's processes are alone: if
	// it wants the CLI's own behaviour, it may also call what changes a whole process. Its
	// sessions may be open in other processes too, which are as much its own.
	Sole bool
	// OfflineModel says that a scripted model takes the place of real ones.
	OfflineModel bool
	// Version is the version of this program.
	Version string
	// Observer is told of turns, callbacks and refusals; nil is told nothing.
	Observer *observe.Observer
	// Audit takes who did what. Default: audit.Discard.
	Audit audit.Sink
	// Logger gets what no caller is told.
	Logger *slog.Logger
}

// Services are the parts of a bridge that serve calls. Their methods may be called from any
// goroutine. Package server/rpc serves them over gRPC.
type Services struct {
	Sessions     *Bridge
	Turns        *Bridge
	Shares       *Bridge
	Watch        *Bridge
	Callbacks    *Bridge
	Runtimes     *Bridge
	Events       *stream.Service
	Participants *attach.Service
	CLI          *passthrough.Service
}

// Names for programs that embed a bridge.
type (
	// Start starts a runtime whose connection the bridge serves.
	Start = fleet.Start
	// Runtimes starts and restarts CLI processes.
	Runtimes = fleet.Supervisor
)

// Bridge serves the calls. Its methods may be called from any goroutine.
type Bridge struct {
	// Services are set by New.
	Services

	cfg        Config
	log        *slog.Logger
	codec      *wire.Codec
	answers    *answer.Converter
	defaults   jsonobj.Object
	tenants    *tenancy.Tenants
	tuned      atomic.Pointer[tuned]
	operations *operation.Runner
	watchers   *broadcast.Hub[change]
	runs       runs

	shutdown  *shutdown.Coordinator
	shells    *shell.Runner
	admission *admission.Controller

	budget   *journal.Budget
	sessions *registry.Registry[*registry.Entry]
	epochs   registry.Epochs
	saver    *registry.Saver[*registry.Entry]
	fleet    *fleet.Fleet
}

// New returns a bridge. The caller must Close it.
func New(cfg Config) (*Bridge, error) {
	setDefault(&cfg.MaxPromptBytes, DefaultMaxPromptBytes)
	setDefault(&cfg.MaxAttachmentBytes, DefaultMaxAttachmentBytes)
	setDefault(&cfg.CallbackTimeout, callback.DefaultTimeout)
	setDefault(&cfg.MaxEphemeralBytes, journal.DefaultMaxEphemeralBytes)
	setDefault(&cfg.MaxMemoryBytes, journal.DefaultMaxMemoryBytes)
	setDefault(&cfg.IdleUnload, fleet.DefaultIdleUnload)
	setDefault(&cfg.ConfinementGrace, fleet.DefaultConfinementGrace)
	setDefault(&cfg.Turns.Stall, turn.DefaultStall)
	setDefault(&cfg.Turns.ModelCall, turn.DefaultModelCall)
	setDefault(&cfg.Turns.Rest, turn.DefaultRest)
	if cfg.Limits == nil {
		cfg.Limits = func() quota.Limits { return quota.Limits{} }
	}
	if cfg.Observer == nil {
		cfg.Observer = observe.Silent()
	}
	if cfg.Audit == nil {
		cfg.Audit = audit.Discard
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := wire.New(cfg.Logger)
	if err != nil {
		return nil, err
	}
	var defaults jsonobj.Object
	if len(cfg.Defaults) > 0 {
		if defaults, err = jsonobj.Parse(cfg.Defaults); err != nil {
			return nil, fault.Wrap(err, fault.InvalidField, "session defaults")
		}
	}
	if cfg.Dialed {
		cfg.Placement.MaxSessions = math.MaxInt
	}
	setDefault(&cfg.Placement.Idle, placement.DefaultIdle)
	b := &Bridge{
		cfg: cfg, log: cfg.Logger, codec: c, answers: answer.New(c), defaults: defaults,
		watchers: broadcast.New[change](watchQueue, broadcast.Reset),
		budget:   journal.NewBudget(cfg.MaxMemoryBytes),
		shutdown: shutdown.New(), sessions: registry.New(inState(session.Deleted), inState(session.Disconnected)),
		tenants: &tenancy.Tenants{
			Host: tenancy.Tenant{
				Profile: cfg.Profile, ProfileFields: cfg.ProfileFields, Homes: cfg.Homes, Ambient: true, Confined: true,
			},
			Lookup: cfg.Tenant, Dialed: cfg.Dialed,
		},
	}
	b.saver = registry.NewSaver(b.save)
	b.admission = admission.New(admission.Config{
		Sessions: func() []*session.Session { return sessionsOf(b.sessions.All()) },
		Tenant:   b.tenants.Limits, Overall: cfg.Limits, Tenants: cfg.Tenant != nil,
		MaxPromptBytes: func() int { return b.tuned.Load().MaxPromptBytes },
	})
	if cfg.Directory != nil {
		b.epochs.Reserve = cfg.Directory.NextEpoch
	}
	b.Sessions, b.Turns, b.Shares, b.Watch, b.Callbacks, b.Runtimes = b, b, b, b, b, b
	b.shells = shell.New(b.shutdown, b.log)
	b.Events = stream.New(finder{b}, c, b.shutdown)
	b.operations = operation.New(b.shutdown, b.admission.Remembered, b.log)
	b.Participants = attach.New(attach.Config{
		Host: attachHost{finder{b}}, Streams: b.Events, Operations: b.operations, Shutdown: b.shutdown, Codec: c,
		Observer: cfg.Observer, Audit: cfg.Audit, Log: cfg.Logger,
	})
	b.CLI = passthrough.New(passthrough.Config{
		Host: cliHost{finder{b}}, Codec: c, Operations: b.operations, Shutdown: b.shutdown, Shells: b.shells,
		Raw: cfg.Raw, Sole: cfg.Sole,
	})
	b.fleet = fleet.New(fleet.Config{
		Supervise: cfg.Runtimes, Tenants: b.tenants, Shutdown: b.shutdown, Changed: b.updated,
		Sessions: func() []*session.Session { return sessionsOf(b.all()) },
		Bounds:   b.admission.Runtimes, MaxRSS: b.admission.MaxRSS, SweepInterval: cfg.sweepInterval(),
		Tuning: cfg.tuning().fleet(), Log: b.log,
	})
	if err := b.Tune(cfg.tuning()); err != nil {
		b.shutdown.Close()
		return nil, err
	}
	if err := errors.Join(b.restoreOperations(), b.restore()); err != nil {
		b.shutdown.Close()
		return nil, fault.Wrap(err, fault.Internal, "restoring the sessions")
	}
	b.Go(b.fleet.Run)
	b.Go(b.budget.Run)
	b.Go(b.saver.Run)
	b.Go(b.operations.Sweep)
	b.awake()
	return b, nil
}

// inState returns a function that reports whether a session is in a state.
func inState(state session.State) func(*registry.Entry) bool {
	return func(e *registry.Entry) bool { return e.Session.State() == state }
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Drain asks every stream to go away, and ends those that have not after grace.
func (b *Bridge) Drain(grace time.Duration) { b.shutdown.Drain(grace) }

// AwaitTurns waits for the end of the turns that run, for as long as ctx lasts.
func (b *Bridge) AwaitTurns(ctx context.Context) {
	for _, e := range b.all() {
		if e.Session.Turns().AwaitRest(ctx) != nil {
			return
		}
	}
}

// Close ends what runs in the background and waits for it. Streams and calls must have
// ended before.
func (b *Bridge) Close() {
	b.shutdown.Close()
	b.closeStore()
}

// Fleet returns the CLI processes in use.
func (b *Bridge) Fleet() *fleet.Fleet { return b.fleet }

// Go runs f in the background until the bridge closes.
func (b *Bridge) Go(f func(ctx context.Context)) { b.shutdown.Go(f) }

// open returns a session that the caller may use.
func (b *Bridge) open(ctx context.Context, id string) (*session.Session, error) {
	e, err := b.openEntry(ctx, id)
	if e == nil {
		return nil, err
	}
	return e.Session, err
}

// openEntry is open with the session's profile and shares.
func (b *Bridge) openEntry(ctx context.Context, id string) (*registry.Entry, error) {
	if err := tenancy.CheckName(id, "session_id"); err != nil {
		return nil, err
	}
	e, err := b.find(ctx, id)
	if err != nil {
		return nil, b.explainDamage(ctx, id, err)
	}
	return e, e.Session.Usable()
}

// entryOf returns the entry of a session; nil if the session was removed.
func (b *Bridge) entryOf(s *session.Session) *registry.Entry {
	if e := b.sessions.Get(s.Key()); e != nil && e.Session == s {
		return e
	}
	return nil
}

// all returns the sessions that their callers may use, of all tenants, in no order.
func (b *Bridge) all() []*registry.Entry {
	return slices.DeleteFunc(b.sessions.All(), func(e *registry.Entry) bool { return e.Session.Usable() != nil })
}

// sessionsOf returns the sessions of entries.
func sessionsOf(entries []*registry.Entry) []*session.Session {
	out := make([]*session.Session, len(entries))
	for i, e := range entries {
		out[i] = e.Session
	}
	return out
}

// record notes the position of the reply to the call that ctx belongs to.
func record(ctx context.Context, p journal.Position) {
	position.Record(ctx, position.Position{Epoch: p.Epoch, Seq: p.Seq})
}
