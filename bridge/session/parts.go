package session

import (
	"context"
	"encoding/json"
	"log/slog"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
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

func newCallbacks(s *Session, room callback.Room, observer *observe.Observer) *callbacks.Desk {
	return callbacks.New(callbacks.Config{
		Session: s.id, Tenant: s.tenant, Room: room, Journal: s.journal, Observer: observer, Audit: s.audit,
		Lock: func() callbacks.Tx {
			s.mu.Lock()
			return locked{s}
		},
		Unlock: s.mu.Unlock,
		Answer: s.loader.answer, Usable: s.loader.Answerable,
		Approved: func(urls []config.Setting) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.settings.Approve(urls)
		},
		ModelTaken: func(id, participant string) { s.models.Taken(id, participant) },
		Changed:    func(note any) { s.host.CallbackChanged(s, note) },
		Go:         s.host.Go,
		Logger:     s.host.Logger,
	})
}

func newModels(s *Session) *modelproxy.Proxy {
	return modelproxy.New(modelproxy.Config{
		Ask: func(ctx context.Context, p *callback.Pending) (json.RawMessage, error) {
			return s.callbacks.Ask(ctx, p)
		},
		Take: func(ctx context.Context, id, participant string) {
			// Resolve fails if another participant has answered; the proxy knows that participant then.
			by, reply := callback.Giver{Participant: participant}, callback.Reply{Members: json.RawMessage(`{}`)}
			s.callbacks.Resolve(ctx, id, by, reply, func(journal.Position, error) {})
		},
		Self: roster.Itself,
		Timeout: func() time.Duration {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.loader.timeout
		},
		Position: s.journal.Last,
		Classify: Classify,
		Go:       s.host.Go,
		Logger:   func() *slog.Logger { return s.host.Logger().With("session_id", s.id) },
	})
}

func newPrompts(s *Session, box *outbox.Box) *prompts.Queue {
	return prompts.New(prompts.Config{
		Session: s.id, Box: box, Journal: s.journal,
		Update: func(f func(prompts.Tx)) {
			s.mu.Lock()
			defer s.mu.Unlock()
			f(locked{s})
		},
		Outcome: func(ctx context.Context, at journal.Position) turn.Outcome {
			return s.turns.OutcomeOf(ctx, at)
		},
		HasHeaders: func() bool { return s.settings.HasHeaders() },
		Classify:   Classify,
		In:         func(ctx context.Context, f func(prompts.Runtime) error) error { return s.sender.In(ctx, f) },
		Go:         s.host.Go,
		Logger:     s.host.Logger,
	})
}

func newTurns(s *Session, bounds turn.Bounds, observer *observe.Observer) *turns.Turns {
	return turns.New(turns.Config{
		Session: s.id, Tenant: s.tenant, Lock: &s.mu, Tx: locked{s}, Journal: s.journal,
		Callbacks: s.callbacks, Prompts: s.prompts, Observer: observer, Bounds: bounds, Reason: turnReason,
		Classify: Classify, Completed: s.loader.turnCompleted,
	})
}

func newSender(s *Session) *sending.Sender {
	return sending.New(sending.Config{
		Session: s.id, Journal: s.journal, Lock: &s.mu, Tx: locked{s}, Turns: s.turns, Prompts: s.prompts,
		In: func(ctx context.Context, f func(sending.Runtime) error) error {
			return s.loader.In(ctx, func(rt Runtime) error { return f(rt) })
		},
		Load: load(s.loader),
		Loaded: func() (sending.Runtime, func()) {
			rt, release := holdLoaded(s.loader)
			return rt, release
		},
		Moved: func(ctx context.Context, rt sending.Runtime, err error) bool {
			return s.loader.moved(ctx, rt.(Runtime), err)
		},
		Abortable:  s.loader.Abortable,
		Abort:      s.loader.Abort,
		Unloaded:   func() bool { return s.loader.State() == Unloaded },
		HasHeaders: func() bool { return s.settings.HasHeaders() },
		Reconfigure: func(ctx context.Context, rt sending.Runtime, set func()) error {
			return s.loader.exclusive(ctx, func() error {
				set()
				return s.participants.WarmResume(ctx, rt, nil)
			})
		},
		Classify: Classify,
		Go:       s.host.Go,
		Spawn:    s.host.Spawn,
		Logger:   s.host.Logger,
	})
}

func newWatchdog(s *Session) *watchdog.Watchdog[Runtime] {
	return watchdog.New(watchdog.Config[Runtime]{
		Session: s.id, Lock: &s.mu, Tx: locked{s}, Journal: s.journal,
		Turns: s.turns, Callbacks: s.callbacks, Prompts: s.prompts,
		Reconcile: func(ctx context.Context, rt Runtime) (changed bool, err error) {
			return s.reconciler.Pending(ctx, inRuntime{s.loader, rt})
		},
		Call: func(ctx context.Context, rt Runtime, method string) (json.RawMessage, error) {
			result, _, err := s.calls.call(ctx, rt, method, nil)
			return result, err
		},
		Internal: func() (end func()) {
			s.loader.setInternal(true)
			return func() { s.loader.setInternal(false) }
		},
		Drop: s.loader.drop, Load: load(s.loader),
		Exclusive: s.loader.exclusive,
		Unloaded:  func() bool { return s.loader.State() == Unloaded },
		Go:        s.host.Go,
		Logger:    s.host.Logger,
	})
}

func newSettings(s *Session) *settings.Settings {
	return settings.New(settings.Config{
		Session: s.id, Lock: &s.mu, Tx: locked{s}, Journal: s.journal, Roster: &s.roster, Turns: s.turns,
		Participants: s.participants, Exclusive: s.loader.exclusive,
		Load: func(ctx context.Context) (participants.Runtime, error) { return s.loader.load(ctx) },
		Do: func(ctx context.Context, method string, params jsonobj.Object) (json.RawMessage, journal.Position, error) {
			return s.loader.Do(ctx, method, params)
		},
		Call: func(ctx context.Context, rt participants.Callee, method string, params jsonobj.Object) (
			json.RawMessage, journal.Position, error) {
			return s.calls.call(ctx, rt, method, params)
		},
		Logger: s.host.Logger,
	})
}

func newIntake(s *Session, at time.Time) *ingest.Intake {
	return ingest.New(ingest.Config{
		Session: s.id, Tx: locked{s}, Journal: s.journal, Turn: s.turns.Machine(), Callbacks: s.callbacks,
		Update: func(f func()) {
			s.mu.Lock()
			defer s.mu.Unlock()
			f()
		},
		Logger: s.host.Logger,
	}, at)
}

func newReconciler(s *Session) *reconcile.Reconciler {
	return reconcile.New(reconcile.Config{
		Session: s.id, Lock: &s.mu, Tx: locked{s}, Journal: s.journal, Intake: s.intake, Turns: s.turns,
		Prompts: s.prompts, Callbacks: s.callbacks,
		Epoch:  s.host.Epoch,
		Logger: s.host.Logger,
	})
}

// inRuntime implements reconcile.Runtime for the session in one runtime.
type inRuntime struct {
	l  *Loader
	rt Runtime
}

func (in inRuntime) Current() bool { return in.l.runtime == in.rt && in.l.state == Loaded }

func (in inRuntime) Call(ctx context.Context, method string, params jsonobj.Object) (json.RawMessage, error) {
	result, _, err := in.l.cfg.calls.call(ctx, in.rt, method, params)
	return result, err
}

// load returns a function that loads the session if no runtime has it.
func load(l *Loader) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		_, err := l.Load(ctx)
		return err
	}
}

// connect configures the loader with the other parts.
func connect(s *Session, shared bool) {
	s.loader.cfg = loaderConfig{
		calls: s.calls, audit: s.audit, tx: locked{s}, journal: s.journal, roster: &s.roster, callbacks: s.callbacks,
		models: s.models, prompts: s.prompts, turns: s.turns, sender: s.sender, intake: s.intake,
		participants: s.participants, reconciler: s.reconciler, settings: s.settings, shared: shared,
		newRuntime: s.host.Runtime,
		route:      func(rt Runtime) error { return rt.Route(s) },
		unroute:    func(rt Runtime) { rt.Unroute(s) },
		place:      func(j *Joining) (Joined, error) { return s.participants.Add(j.In(s)) },
		changed:    func(change bridgev1.SessionChange) { s.host.Changed(s, change) },
		refresh:    func() { s.host.Refresh(s) },
		background: s.host.Go,
	}
}

// Loader returns the part that loads and unloads the session.
func (s *Session) Loader() *Loader { return s.loader }

// Callbacks returns the session's callbacks.
func (s *Session) Callbacks() *callbacks.Desk { return s.callbacks }

// Models returns the part that carries out the session's model requests.
func (s *Session) Models() *modelproxy.Proxy { return s.models }

// Prompts returns the queue of the prompts whose turns have not ended.
func (s *Session) Prompts() *prompts.Queue { return s.prompts }

// Turns returns the session's turns.
func (s *Session) Turns() *turns.Turns { return s.turns }

// Watchdog returns the part that ends turns without progress.
func (s *Session) Watchdog() *watchdog.Watchdog[Runtime] { return s.watchdog }

// Settings returns the session's configuration.
func (s *Session) Settings() *settings.Settings { return s.settings }

// Sender returns the part that sends messages.
func (s *Session) Sender() *sending.Sender { return s.sender }
