// Package session holds what the bridge knows of one conversation: its configuration,
// its journal, its participants, its pending callbacks and its turn, and keeps the
// runtime that has it loaded in step with them.
//
// Two locks: the gate serialises what changes the session in the runtime (create,
// resume, tools, provider, destroy) and is held across calls; mu guards the state and
// is held briefly, also by the goroutine that reads the CLI's connection, which never
// waits for the gate.
package session

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/quirks"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/callbacks"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/ingest"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/modelproxy"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/participants"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/prompts"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/reconcile"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/sending"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/settings"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turns"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/watchdog"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Runtime is the CLI process that has a session loaded.
type Runtime interface {
	participants.Runtime
	// Route sends the session's events to it; Unroute ends that.
	Route(s *Session)
	Unroute(s *Session)
	// Err says why the runtime ended; nil while it has not.
	Err() error
	// Ended is closed when the runtime has ended and its sessions know it.
	Ended() <-chan struct{}
}

// Host is what a session needs around it.
type Host interface {
	// Runtime returns a runtime to load a session in.
	Runtime(ctx context.Context) (Runtime, error)
	// Go runs f on a goroutine of the host's, which it ends with its own end.
	Go(f func(ctx context.Context))
	// Changed tells of a change to the session that watchers of sessions want to know.
	Changed(s *Session, change bridgev1.SessionChange)
	// Keep has the session kept for the bridge's next life, as it is or will be a moment
	// later. The session's lock is held.
	Keep(s *Session)
	// Epoch returns an epoch later than all before.
	Epoch() uint64
	// Logger is for what has no caller to be told.
	Logger() *slog.Logger
}

// State is what a session is doing.
type State uint8

// The states.
const (
	// Creating: the runtime is being told of it for the first time.
	Creating State = iota
	// Loaded: a runtime has it.
	Loaded
	// Unloaded: no runtime has it; it is loaded when needed.
	Unloaded
	// Disconnected: its last user left. Only a resume brings it back.
	Disconnected
	// Deleted: it is gone for good.
	Deleted
)

// Config is what a session is made with.
type Config struct {
	ID string
	// Tenant is whose it is; empty for the host's owner.
	Tenant string
	Host   Host
	// Encode gives the wire form of events.
	Encode journal.Encoder
	// Epoch is the journal's epoch.
	Epoch uint64
	// MaxEphemeralBytes bounds the journal's ephemeral part.
	MaxEphemeralBytes int
	// Log is where the journal is kept; without one it is in memory.
	Log *journal.Disk
	// Budget bounds the memory of all journals.
	Budget *journal.Budget
	// CallbackTimeout is how long callbacks wait for an answer.
	CallbackTimeout time.Duration
	// Room is where its callbacks wait for answers, with those of others; nil has room for
	// all.
	Room callback.Room
	// Bounds are those of a turn in which nothing happens.
	Bounds turn.Bounds
	// Shared lets it be resumed while another process has it open, as the CLI does.
	Shared bool
	// Observer is told of turns and callbacks; nil is told nothing.
	Observer *observe.Observer
	// Audit keeps who decided what; nil keeps nothing.
	Audit audit.Sink
	// Outbox has the prompts whose turns have not ended; nil keeps them in memory.
	Outbox *outbox.Box
}

// Session is one conversation. Its methods may be called from any goroutine.
type Session struct {
	id           string
	tenant       string
	host         Host
	journal      *journal.Journal
	callbacks    *callbacks.Desk
	models       *modelproxy.Proxy
	prompts      *prompts.Queue
	turns        *turns.Turns
	sender       *sending.Sender
	participants *participants.Manager
	watchdog     *watchdog.Watchdog[Runtime]
	reconciler   *reconcile.Reconciler
	settings     *settings.Settings
	gate         chan struct{} // capacity 1: holds what changes the session in the runtime
	audit        auditTrail

	mu       sync.Mutex
	state    State
	runtime  Runtime
	lifetime bridgev1.Lifetime
	timeout  time.Duration
	roster   roster.Roster
	intake   *ingest.Intake
	awaited  bool // callbacks waited when the bridge ended
	shared   bool
	uses     int       // what keeps it from being unloaded
	usedAt   time.Time // when it was last used
}

// New returns a session that no runtime knows yet.
func New(cfg Config) *Session {
	if cfg.Audit == nil {
		cfg.Audit = audit.Discard
	}
	if cfg.Observer == nil {
		cfg.Observer = observe.Silent()
	}
	now := time.Now()
	s := &Session{
		id: cfg.ID, tenant: cfg.Tenant, host: cfg.Host,
		journal: journal.New(journal.Config{
			Epoch: cfg.Epoch, MaxEphemeralBytes: cfg.MaxEphemeralBytes, Encode: cfg.Encode, Log: cfg.Log, Budget: cfg.Budget,
		}),
		gate:    make(chan struct{}, 1),
		timeout: cfg.CallbackTimeout,
		shared:  cfg.Shared, usedAt: now,
		audit: auditTrail{cfg.Audit, cfg.ID, cfg.Tenant},
	}
	s.models = newModels(s)
	s.callbacks = newCallbacks(s, cfg.Room, cfg.Observer)
	s.prompts = newPrompts(s, cfg.Outbox)
	s.turns = newTurns(s, cfg.Bounds, cfg.Observer)
	s.sender = newSender(s)
	s.watchdog = newWatchdog(s)
	s.intake = newIntake(s, now)
	s.reconciler = newReconciler(s)
	s.participants = newParticipants(s)
	s.settings = newSettings(s)
	if s.timeout <= 0 {
		s.timeout = callback.DefaultTimeout
	}
	return s
}

// ID returns the session's id.
func (s *Session) ID() string { return s.id }

// Journal returns the session's journal.
func (s *Session) Journal() *journal.Journal { return s.journal }

// State returns what the session is doing.
func (s *Session) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

// Usable returns SESSION_NOT_FOUND unless callers may use the session.
func (s *Session) Usable() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usable()
}

func (s *Session) usable() error {
	if s.state == Disconnected || s.state == Deleted || s.state == Creating {
		return NotFound(s.id)
	}
	return nil
}

// Asking returns nil while the session's callbacks can be answered: also while it is being
// created, and if it needs answers for that, resumed.
func (s *Session) Asking() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state == Creating || s.state != Deleted && s.settings.Requires("") {
		return nil
	}
	return s.usable()
}

func (l locked) Approve(settings []config.Setting) { l.s.settings.Approve(settings) }
func (l locked) Announce()                         { l.s.host.Changed(l.s, bridgev1.SessionChange_SESSION_CHANGE_UPDATED) }

// Ingest takes an event that arrived at a time. It runs on the goroutine that reads the runtime's
// connection, in the order in which the CLI sent the events, and never blocks. It keeps the record.
func (s *Session) Ingest(rec *journal.Record, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intake.Take(rec, at)
}

// NotFound is the error for a session that does not exist, or not for the caller.
func NotFound(id string) error {
	return fault.New(fault.SessionNotFound, "Session not found: %s", id).WithField("session_id").With("session_id", id)
}

// lock takes a gate, or gives up with the context.
func lock(ctx context.Context, gate chan struct{}) error {
	select {
	case gate <- struct{}{}:
		return nil
	case <-ctx.Done():
		return Classify(ctx.Err(), "")
	}
}

func unlock(gate chan struct{}) { <-gate }

// call makes a JSON-RPC call about the session, and returns the journal's position when
// the reply was read.
func (s *Session) call(ctx context.Context, rt participants.Callee, method string, params jsonobj.Object, opts ...rpcconn.CallOption) (
	json.RawMessage, journal.Position, error) {
	if (method == "session.create" || method == "session.resume") && quirks.AgentsNeedNames.In(rt.Version()) {
		params = config.WithAgentNames(params)
	}
	params.SetString("sessionId", s.id)
	var at journal.Position
	opts = append(opts, rpcconn.OnReply(func() { at = s.journal.Last() }))
	result, err := rt.Call(ctx, method, params.JSON(), opts...)
	if err != nil {
		return nil, at, Classify(err, method)
	}
	return result, at, nil
}
