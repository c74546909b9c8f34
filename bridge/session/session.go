// Package session holds what the bridge knows of one conversation: its configuration,
// its journal, its participants, its pending callbacks and its turn, and keeps the
// runtime that has it loaded in step with them.
//
// A Session composes parts, of which most are packages, and guards their state by one lock, mu. Loader
// has a second lock, which serialises the changes of the session in its runtime; it comes before mu.
package session

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/audit"
	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
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
	calls        calls
	callbacks    *callbacks.Desk
	models       *modelproxy.Proxy
	prompts      *prompts.Queue
	turns        *turns.Turns
	sender       *sending.Sender
	participants *participants.Manager
	watchdog     *watchdog.Watchdog[Runtime]
	reconciler   *reconcile.Reconciler
	settings     *settings.Settings
	loader       *Loader
	audit        auditTrail

	mu     sync.Mutex
	roster roster.Roster
	intake *ingest.Intake
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
		audit: auditTrail{cfg.Audit, cfg.ID, cfg.Tenant},
	}
	s.calls = calls{s.id, s.journal}
	s.loader = newLoader(&s.mu, cfg.CallbackTimeout)
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
	connect(s, cfg.Shared)
	return s
}

// ID returns the session's id.
func (s *Session) ID() string { return s.id }

// Journal returns the session's journal.
func (s *Session) Journal() *journal.Journal { return s.journal }

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
