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
)

// newCallbacks returns the desk of the session's callbacks.
func newCallbacks(s *Session, room callback.Room, observer *observe.Observer) *callbacks.Desk {
	return callbacks.New(callbacks.Config{
		Session: s.id, Tenant: s.tenant, Room: room, Journal: s.journal, Observer: observer, Audit: s.audit,
		Lock: func() callbacks.Tx {
			s.mu.Lock()
			return locked{s}
		},
		Unlock: s.mu.Unlock,
		Answer: func(ctx context.Context, method string, params jsonobj.Object) (
			result json.RawMessage, at journal.Position, ended <-chan struct{}, err error) {
			err = s.retried(ctx, func(rt Runtime) (err error) {
				ended = rt.Ended()
				result, at, err = s.call(ctx, rt, method, params, rpcconn.Priority())
				return err
			})
			return result, at, ended, err
		},
		Usable: s.Asking,
		Approved: func(urls []config.Setting) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.settings.Approve(urls)
		},
		ModelTaken: func(id, participant string) { s.models.Taken(id, participant) },
		Go:         s.host.Go,
		Logger:     s.host.Logger,
	})
}

// newModels returns the proxy of the session's requests to models.
func newModels(s *Session) *modelproxy.Proxy {
	return modelproxy.New(modelproxy.Config{
		Ask: func(ctx context.Context, p *callback.Pending) (json.RawMessage, error) {
			return s.callbacks.Ask(ctx, p)
		},
		Take: func(ctx context.Context, id, participant string) {
			// Where another participant has answered it, the proxy knows the owner.
			by, reply := callback.Giver{Participant: participant}, callback.Reply{Members: json.RawMessage(`{}`)}
			_, _ = s.callbacks.Resolve(ctx, id, by, reply)
		},
		Self: roster.Itself,
		Timeout: func() time.Duration {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.timeout
		},
		Position: s.journal.Last,
		Classify: Classify,
		Go:       s.host.Go,
		Logger:   func() *slog.Logger { return s.host.Logger().With("session_id", s.id) },
	})
}

// newPrompts returns the queue of the session's prompts.
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

// newTurns returns the session's turns.
func newTurns(s *Session, bounds turn.Bounds, observer *observe.Observer) *turns.Turns {
	return turns.New(turns.Config{
		Session: s.id, Tenant: s.tenant, Lock: &s.mu, Tx: locked{s}, Journal: s.journal,
		Callbacks: s.callbacks, Prompts: s.prompts, Observer: observer, Bounds: bounds, Reason: turnReason,
		Classify: Classify,
	})
}

// newSender returns the sender of the session's messages.
func newSender(s *Session) *sending.Sender {
	return sending.New(sending.Config{
		Session: s.id, Journal: s.journal, Lock: &s.mu, Tx: locked{s}, Turns: s.turns, Prompts: s.prompts,
		In: func(ctx context.Context, f func(sending.Runtime) error) error {
			return s.retried(ctx, func(rt Runtime) error { return f(rt) })
		},
		Load: s.load,
		Abort: func(ctx context.Context) (bool, journal.Position, error) {
			if err := s.Usable(); err != nil || s.State() != Loaded {
				return false, journal.Position{}, err
			}
			_, at, err := s.Do(ctx, "session.abort", nil)
			return true, at, err
		},
		Unloaded:   func() bool { return s.State() == Unloaded },
		HasHeaders: func() bool { return s.settings.HasHeaders() },
		Reconfigure: func(ctx context.Context, rt sending.Runtime, set func()) error {
			return s.exclusive(ctx, func() error {
				set()
				return s.participants.WarmResume(ctx, rt, nil)
			})
		},
		Classify: Classify,
		Go:       s.host.Go,
		Logger:   s.host.Logger,
	})
}

// newWatchdog returns the part that ends turns without progress.
func newWatchdog(s *Session) *watchdog.Watchdog[Runtime] {
	return watchdog.New(watchdog.Config[Runtime]{
		Session: s.id, Lock: &s.mu, Tx: locked{s}, Journal: s.journal,
		Turns: s.turns, Callbacks: s.callbacks, Prompts: s.prompts,
		Reconcile: func(ctx context.Context, rt Runtime) (changed bool, err error) {
			return s.reconciler.Pending(ctx, inRuntime{s, rt})
		},
		Call: func(ctx context.Context, rt Runtime, method string) (json.RawMessage, error) {
			result, _, err := s.call(ctx, rt, method, nil)
			return result, err
		},
		Internal: func() (end func()) {
			s.setInternal(true)
			return func() { s.setInternal(false) }
		},
		Drop: s.drop, Load: s.load,
		Exclusive: s.exclusive,
		Unloaded:  func() bool { return s.State() == Unloaded },
		Go:        s.host.Go,
		Logger:    s.host.Logger,
	})
}

// load has the session loaded.
func (s *Session) load(ctx context.Context) error {
	_, err := s.Loaded(ctx)
	return err
}

// newSettings returns the session's configuration.
func newSettings(s *Session) *settings.Settings {
	return settings.New(settings.Config{
		Session: s.id, Lock: &s.mu, Tx: locked{s}, Journal: s.journal, Roster: &s.roster, Turns: s.turns,
		Participants: s.participants, Exclusive: s.exclusive,
		Load: func(ctx context.Context) (participants.Runtime, error) { return s.loaded(ctx) },
		Do: func(ctx context.Context, method string, params jsonobj.Object) (json.RawMessage, journal.Position, error) {
			return s.Do(ctx, method, params)
		},
		Call: func(ctx context.Context, rt participants.Callee, method string, params jsonobj.Object) (
			json.RawMessage, journal.Position, error) {
			return s.call(ctx, rt, method, params)
		},
		Logger: s.host.Logger,
	})
}

// exclusive calls f with the gate held.
func (s *Session) exclusive(ctx context.Context, f func() error) error {
	if err := lock(ctx, s.gate); err != nil {
		return err
	}
	defer unlock(s.gate)
	return f()
}

// newIntake returns the part that takes the session's events.
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

// newReconciler returns the part that brings the session in step with the CLI.
func newReconciler(s *Session) *reconcile.Reconciler {
	return reconcile.New(reconcile.Config{
		Session: s.id, Lock: &s.mu, Tx: locked{s}, Journal: s.journal, Intake: s.intake, Turns: s.turns,
		Prompts: s.prompts, Callbacks: s.callbacks,
		Epoch:  s.host.Epoch,
		Logger: s.host.Logger,
	})
}

// inRuntime is the session in a runtime.
type inRuntime struct {
	s  *Session
	rt Runtime
}

func (in inRuntime) Current() bool { return in.s.runtime == in.rt && in.s.state == Loaded }

func (in inRuntime) Call(ctx context.Context, method string) (json.RawMessage, error) {
	result, _, err := in.s.call(ctx, in.rt, method, nil)
	return result, err
}

// Callbacks returns the session's callbacks.
func (s *Session) Callbacks() *callbacks.Desk { return s.callbacks }

// Models returns the session's requests to models.
func (s *Session) Models() *modelproxy.Proxy { return s.models }

// Prompts returns the prompts whose turns have not ended.
func (s *Session) Prompts() *prompts.Queue { return s.prompts }

// Turns returns the session's turns.
func (s *Session) Turns() *turns.Turns { return s.turns }

// Watchdog returns the part that ends turns without progress.
func (s *Session) Watchdog() *watchdog.Watchdog[Runtime] { return s.watchdog }

// Settings returns the session's configuration.
func (s *Session) Settings() *settings.Settings { return s.settings }

// Sender returns the part that sends messages.
func (s *Session) Sender() *sending.Sender { return s.sender }
