// Package watchdog ends turns of a session that make no progress within their time limits. Each turn always has
// one owner that ends it:
//
//   - Until the CLI has accepted the message: the call that sends it.
//   - In a runtime: the CLI's events. If none arrives for the limit, the Watchdog asks the CLI whether the turn
//     still has work, and ends the turn if it has none.
//   - Without a runtime: the load of the session. If no load happens for the limit, the Watchdog loads the
//     session.
//
// A Watchdog has no state. The machine of the session's turns records that one goroutine is ending a turn, so
// that there is only one at a time. Config.Go starts it, and it ends within a few minutes or with the bridge.
package watchdog

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/activity"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/callbacks"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/prompts"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turns"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const (
	// stepTimeout bounds each step of ending a turn that has stalled.
	stepTimeout = 10 * time.Second
	// reloadTimeout bounds loading a session for its waiters, the start of a runtime included.
	reloadTimeout = 2 * time.Minute
)

// Tx is the session while its lock is held. R is a runtime.
type Tx[R comparable] interface {
	prompts.Tx
	// Runtime returns the runtime that has the session; the zero value if none has.
	Runtime() R
}

// Config is what a Watchdog needs of its session.
type Config[R comparable] struct {
	// Session is the session's id, for the log.
	Session string
	// Lock is the session's lock; Tx is the session, used with the lock held.
	Lock      sync.Locker
	Tx        Tx[R]
	Journal   *journal.Journal
	Turns     *turns.Turns
	Callbacks *callbacks.Desk
	Prompts   *prompts.Queue
	// Reconcile brings the pending callbacks in step with the CLI, and reports whether they were
	// not.
	Reconcile func(ctx context.Context, rt R) (changed bool, err error)
	// Call makes a call about the session that takes no parameters.
	Call func(ctx context.Context, rt R, method string) (json.RawMessage, error)
	// Internal marks what happens until end is called as the bridge's own doing.
	Internal func() (end func())
	// Drop removes the session from a runtime, without regard to running work.
	Drop func(ctx context.Context, rt R) error
	// Load has the session loaded.
	Load func(ctx context.Context) error
	// Exclusive calls f while nothing changes the session in a runtime.
	Exclusive func(ctx context.Context, f func() error) error
	// Unloaded reports whether the session is in use and no runtime has it.
	Unloaded func() bool
	// Go runs f on a goroutine that ends with the bridge.
	Go     func(f func(ctx context.Context)) bool
	Logger func() *slog.Logger
}

// Watchdog looks after the turns of a session. New makes one.
type Watchdog[R comparable] struct{ cfg Config[R] }

// New returns a watchdog.
func New[R comparable](cfg Config[R]) *Watchdog[R] { return &Watchdog[R]{cfg} }

// Check ends turns and waits that have made no progress within their time limits. The bridge calls
// it every few seconds; it does not wait for the CLI.
func (w *Watchdog[R]) Check() {
	w.cfg.Lock.Lock()
	defer w.cfg.Lock.Unlock()
	machine, loaded := w.cfg.Turns.Machine(), w.cfg.Tx.Loaded()
	switch now := time.Now(); {
	case loaded && machine.Overdue(now, w.cfg.Callbacks.Registry().Len() > 0):
		machine.SetStalling(true)
		rt, last := w.cfg.Tx.Runtime(), machine.LastEvent()
		w.cfg.Go(func(ctx context.Context) { w.endStalled(ctx, rt, last) })
	case !loaded && machine.Deserted(now):
		machine.SetStalling(true)
		w.cfg.Go(w.reloadForWaiters)
	}
}

// endStalled gives up the turn that has been silent since last, unless the CLI says that
// something goes on.
func (w *Watchdog[R]) endStalled(ctx context.Context, rt R, last time.Time) {
	working := w.stillActive(ctx, rt)
	w.cfg.Lock.Lock()
	machine := w.cfg.Turns.Machine()
	heard := w.cfg.Tx.Runtime() != rt || !machine.Busy() || machine.LastEvent() != last
	if working && !heard {
		machine.Heard(time.Now())
	}
	if working || heard {
		machine.SetStalling(false)
		w.cfg.Lock.Unlock()
		return
	}
	if machine.AtRest() {
		w.cfg.Turns.CarryOut(machine.Rest(w.cfg.Journal.Last()))
		w.cfg.Lock.Unlock()
		return
	}
	w.cfg.Lock.Unlock()
	w.cfg.Logger().Warn("turn stalled", "session_id", w.cfg.Session, "silent_since", last)
	w.abortStalled(ctx, rt)
}

// stillActive asks the CLI whether what is believed to be outstanding in the turn is, and whether
// something runs in the background.
func (w *Watchdog[R]) stillActive(ctx context.Context, rt R) bool {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	// The missed callbacks are now requested again or withdrawn, and the time limit begins again.
	if changed, err := w.cfg.Reconcile(ctx, rt); changed && err == nil {
		return true
	}
	w.cfg.Lock.Lock()
	asking, machine := w.cfg.Callbacks.Registry().Len() > 0, w.cfg.Turns.Machine()
	tools, missing := machine.ToolsRun(), machine.Missing()
	w.cfg.Lock.Unlock()
	call := func(ctx context.Context, method string) (json.RawMessage, error) { return w.cfg.Call(ctx, rt, method) }
	// Each callback has its deadline.
	return asking || tools && activity.Working(ctx, call) || missing && !activity.Idle(ctx, call) || activity.TasksRun(ctx, call)
}

// reloadForWaiters loads a session that has waiters, so that its history shows what became of their
// turns, and ends the waiting where that fails.
func (w *Watchdog[R]) reloadForWaiters(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	err := w.cfg.Load(ctx)
	if err == nil || ctx.Err() == nil {
		w.GiveUp(ctx, err)
	}
	w.cfg.Lock.Lock()
	defer w.cfg.Lock.Unlock()
	w.cfg.Turns.Machine().SetStalling(false)
	if err == nil {
		return
	}
	w.cfg.Logger().Warn("loading a session with waiting calls failed", "session_id", w.cfg.Session, "error", err)
	if !w.cfg.Tx.Loaded() {
		w.cfg.Turns.Lose(bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST)
	}
}

// abortStalled has the CLI abort a turn that has stalled, so that the next message does not wait
// behind it. If that does not bring the session to rest, the session is unloaded: the next load
// begins with a fresh one.
func (w *Watchdog[R]) abortStalled(ctx context.Context, rt R) {
	rest := w.cfg.Turns.Expect(nil)
	defer rest.Close()
	w.cfg.Lock.Lock()
	machine := w.cfg.Turns.Machine()
	machine.AwaitRest(rest.State())
	machine.Abandon()
	w.cfg.Lock.Unlock()
	defer w.cfg.Internal()()
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	_, err := w.cfg.Call(ctx, rt, "session.abort")
	if err == nil {
		select {
		case <-rest.State().Done():
			return
		case <-ctx.Done():
		}
	}
	w.cfg.Lock.Lock()
	if w.cfg.Tx.Runtime() != rt || !machine.Stalling() {
		w.cfg.Lock.Unlock()
		return
	}
	w.cfg.Turns.CarryOut(machine.GiveUp(w.cfg.Journal.Last()))
	w.cfg.Lock.Unlock()
	w.cfg.Logger().Warn("aborting a stalled turn failed, loading the session again", "session_id", w.cfg.Session, "error", err)
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), stepTimeout)
	defer cancel()
	if err := w.cfg.Drop(ctx, rt); err != nil {
		w.cfg.Logger().Warn("unloading a session failed", "session_id", w.cfg.Session, "error", err)
	}
	w.cfg.Lock.Lock()
	waited := !w.cfg.Tx.Loaded() && machine.Waiting()
	w.cfg.Lock.Unlock()
	if waited { // for a message that came meanwhile
		w.reloadForWaiters(context.WithoutCancel(ctx))
	}
}

// errNotLoaded is why the history cannot be read if GiveUp has no other error.
var errNotLoaded = errors.New("the session is not loaded")

// GiveUp notes that the bridge stops trying to load the session, because of an error, and resolves
// the messages that a load would have resolved. The session is still loaded when a call needs it.
func (w *Watchdog[R]) GiveUp(ctx context.Context, err error) {
	_ = w.cfg.Exclusive(ctx, func() error { // fails when ctx has ended
		var found prompts.Settlement
		if w.cfg.Unloaded() {
			found = w.cfg.Prompts.LookUp(ctx, nil, cmp.Or(err, errNotLoaded))
		}
		w.cfg.Lock.Lock()
		w.cfg.Turns.Confirm()
		w.cfg.Prompts.Settle(w.cfg.Tx, found)
		w.cfg.Lock.Unlock()
		w.cfg.Prompts.Flush()
		return nil
	})
}
