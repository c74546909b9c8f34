// Package session is the bridge's record of one conversation: the configuration, the journal, the
// participants, the pending callbacks and the turn. It applies them to the CLI process that has the
// session loaded.
//
// The CLI forgets a session's configuration when no process has the session, and a warm resume (a resume of a session
// that the process has loaded) withdraws everything that it does not repeat. The session therefore stores the whole
// configuration, and each load repeats it: its own settings, the union of all participants' tools, and every switch
// that a participant needs.
//
// Changes of a session in the CLI process (create, resume, tools, provider, disconnect) run one at a time and may wait
// for the CLI. The goroutine that reads a connection never waits for them: it takes mu alone. File classify.go maps the
// error texts of the CLI to reasons; no other code compares these texts.
//
// # Parts
//
// One lock, mu, guards all that changes. The parts of a Session are types of this package with a back reference to it,
// because each decides by the state of the others:
//
//	Ingester      takes the CLI's events: order, journal, what follows from them
//	Turns         carries out what package turn decides; waiters, spans
//	Prompts       has the prompts whose turns have not ended, and sends them again
//	Sender        sends messages
//	Callbacks     has the CLI's requests that wait for answers
//	Models        answers the CLI's requests to models, part by part
//	Participants  brings the CLI in step with those who have joined
//	Settings      has the configuration, and repeats it after a load
//	Loader        moves the session into and out of CLI processes
//	Reconciler    compares the session with the CLI after a load
//	Watchdog      ends turns without progress
//
// What decides without a lock is a package of its own: turn, reorder, history, config, roster, info and usage.
//
// Four locks are held across calls to the CLI, and are taken before mu, in this order: the send slot of Prompts, the
// lifecycle lock of Loader, which serialises the changes of the session in the CLI process, the resume lock of
// Participants, and the slot of Settings.
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
	"github.com/copilot-grpc/copilot-grpc/bridge/observe"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// Runtime is a CLI process and its connection.
type Runtime interface {
	// Call makes a JSON-RPC call.
	Call(ctx context.Context, method string, params []byte, opts ...rpcconn.CallOption) (json.RawMessage, error)
	// Version returns the CLI's version.
	Version() string
	// Satellite opens a connection beside the one that Call uses, for a participant. The CLI's
	// requests there go to ask; its events there are dropped.
	Satellite(ctx context.Context, participant string, ask Asker) (roster.Satellite, error)
	// Start makes a call for the caller in ctx, whose end does not end the call. It behaves as rpcconn.Conn.Start.
	Start(ctx context.Context, method string, params []byte, limit time.Duration, done func(json.RawMessage, error),
		opts ...rpcconn.CallOption) error
	// Route delivers the CLI's events of a session to the session. It returns ErrNotAdmitted if the runtime accepts no
	// more sessions. Unroute stops the delivery.
	Route(s *Session) error
	Unroute(s *Session)
	// TurnCompleted notes that a session's turn has completed in the runtime.
	TurnCompleted()
	// Traces reports whether the CLI process exports spans.
	Traces() bool
	// Err returns the error with which the runtime ended, or nil while it runs.
	Err() error
	// Ended returns a channel that is closed when the runtime has ended and each of its sessions
	// has handled that.
	Ended() <-chan struct{}
}

// Host gives one session the services of the bridge. Its methods are safe for concurrent use.
type Host interface {
	// Runtime returns a runtime to load the session in. It starts one if necessary.
	Runtime(ctx context.Context) (Runtime, error)
	// BuiltIns returns the names of the CLI's own tools and commands; nil if they are not known. It may start a runtime.
	BuiltIns(ctx context.Context) *config.BuiltIns
	// Go runs f on another goroutine. The context of f ends when the host closes, and the host waits for f. After the host
	// has closed, Go does nothing and returns false.
	Go(f func(ctx context.Context)) bool
	// Spawn runs f on another goroutine. The host does not wait for f, which may hang in a call of the disk.
	Spawn(f func())
	// Stopped returns a channel that is closed when no call is to go on any longer, since the host is about to close.
	Stopped() <-chan struct{}
	// Changed publishes a change of the session to WatchSessions. The caller holds the session's lock only for UPDATED: at the
	// end of a session's use the host takes locks that others hold while they take that one.
	Changed(change bridgev1.SessionChange)
	// Watched returns the methods and event types that callers of WatchPending handle in the session, which has
	// these labels. The caller may hold the session's lock.
	Watched(labels map[string]string) []string
	// LabelsChanged publishes a change of the session's labels to WatchSessions and WatchPending. It does not block.
	LabelsChanged()
	// CallbackRequested tells callers of WatchPending of a callback that waits, CallbackResolved of its end. They do not
	// block.
	CallbackRequested(p *callback.Pending)
	CallbackResolved(r Resolved)
	// Refresh schedules a call of Participants().Refresh for the session and returns at once.
	Refresh()
	// MarkDirty schedules a save of the session and returns at once. The save includes changes that
	// follow shortly after the call. The caller holds the session's lock.
	MarkDirty()
	// Store saves the session now. It fails if another server may continue the session and would not find it so. Failures of a
	// disk are only logged.
	Store() error
	// Epoch returns an epoch greater than all that it returned before.
	Epoch() uint64
	// Logger returns the logger for failures of background work, which have no caller to return to.
	Logger() *slog.Logger
}

// State is the stage of a session's life cycle.
type State uint8

// The states of a session.
const (
	// Creating means that the session exists in no runtime yet. It is the state until session.create succeeds.
	Creating State = iota
	// Loaded means that a runtime has the session.
	Loaded
	// Unloaded means that no runtime has the session. The next call that needs a runtime loads it.
	Unloaded
	// Disconnected means that the use of the session has ended: a caller disconnected it, or its last
	// participant left. Only a resume opens it again.
	Disconnected
	// Deleted means that the session no longer exists.
	Deleted
)

// Config configures a new Session.
type Config struct {
	ID string
	// Tenant is the owner of the session. It is empty for the user who runs the server.
	Tenant string
	Host   Host
	// Encode returns the wire form of events.
	Encode journal.Encoder
	// Epoch is the journal's epoch.
	Epoch uint64
	// MaxEphemeralBytes bounds the ephemeral events and notes in the journal.
	MaxEphemeralBytes int
	// Log stores the journal. If it is nil, the journal is in memory only.
	Log *journal.Disk
	// Budget bounds the memory of all journals together. It may be nil.
	Budget *journal.Budget
	// CallbackTimeout is the time limit of a callback; zero means callback.DefaultTimeout.
	CallbackTimeout time.Duration
	// Room bounds the pending callbacks of several sessions together. If it is nil, only the session's
	// own bound applies.
	Room callback.Room
	// Bounds are the time limits of a turn without progress.
	Bounds turn.Bounds
	// Shared permits a resume while another process has the session open. The CLI permits it always.
	Shared bool
	// Observer receives metrics and spans of turns and callbacks. A nil Observer records nothing.
	Observer *observe.Observer
	// Audit receives the audit entries of the session. A nil Audit discards them.
	Audit audit.Sink
	// Outbox stores the prompts whose turns have not ended. If it is nil, they are in memory only.
	Outbox *outbox.Outbox
}

// Session is one conversation with the agent. Its methods are safe for concurrent use.
type Session struct {
	id           string
	tenant       string
	shared       bool // permits a resume while another process has the session open
	host         Host
	journal      *journal.Journal
	callbacks    *Callbacks
	models       *Models
	prompts      *Prompts
	turns        *Turns
	sender       *Sender
	participants *Participants
	watchdog     *Watchdog
	reconciler   *Reconciler
	settings     *Settings
	loader       *Loader
	audit        auditTrail

	mu       sync.Mutex
	roster   roster.Roster
	ingester *Ingester
}

// New returns a session in the state Creating.
func New(cfg Config) *Session {
	if cfg.Audit == nil {
		cfg.Audit = audit.Discard
	}
	if cfg.Observer == nil {
		cfg.Observer = observe.Silent()
	}
	now := time.Now()
	s := &Session{
		id: cfg.ID, tenant: cfg.Tenant, host: cfg.Host, shared: cfg.Shared,
		journal: journal.New(journal.Config{
			Epoch: cfg.Epoch, MaxEphemeralBytes: cfg.MaxEphemeralBytes, Encode: cfg.Encode, Log: cfg.Log, Budget: cfg.Budget,
		}),
		audit: auditTrail{cfg.Audit, cfg.ID, cfg.Tenant},
	}
	s.loader = newLoader(s, cfg.CallbackTimeout)
	s.models = &Models{s: s, requests: map[string]*modelRequest{}}
	s.callbacks = &Callbacks{s, cfg.Observer, callback.NewRegistry(cfg.Room)}
	s.prompts = newPrompts(s, cfg.Outbox)
	s.turns = &Turns{s: s, observer: cfg.Observer, machine: turn.New(cfg.Bounds, turnReason)}
	s.turns.trace = trace{s: s, observer: cfg.Observer}
	s.sender = &Sender{s: s}
	s.watchdog = &Watchdog{s}
	s.ingester = newIngester(s, now)
	s.reconciler = &Reconciler{s: s}
	s.participants = newParticipants(s)
	s.settings = &Settings{s: s, telling: make(slot, 1)}
	return s
}

// update calls f with the session's lock held.
func (s *Session) update(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// markDirty schedules a save of the session. The caller holds mu.
func (s *Session) markDirty() { s.host.MarkDirty() }

// watched returns the callbacks that callers of WatchPending handle in the session. The caller holds mu.
func (s *Session) watched() config.Handling {
	return config.Handling{Methods: s.host.Watched(s.settings.State.Labels)}
}

// ID returns the session's id.
func (s *Session) ID() string { return s.id }

// Journal returns the session's journal.
func (s *Session) Journal() *journal.Journal { return s.journal }

// Ingest processes an event of the CLI that arrived at the given time, and retains rec. The goroutine that
// reads the runtime's connection calls it for each event, in the CLI's order. Ingest holds the session's
// lock briefly and waits for nothing else.
func (s *Session) Ingest(rec *journal.Record, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ingester.take(rec, at)
}

// Stored returns SESSION_NOT_FOUND for a session that exists and is not open.
func Stored(id string) error {
	return fault.New(fault.SessionNotFound, "Session not found: %s is disconnected", id).WithField("session_id").
		With("session_id", id).WithRemedy("ResumeSession opens it again")
}

// NotFound returns SESSION_NOT_FOUND: the session does not exist, or the caller may not see it.
func NotFound(id string) error {
	return fault.New(fault.SessionNotFound, "Session not found: %s", id).WithField("session_id").With("session_id", id)
}
