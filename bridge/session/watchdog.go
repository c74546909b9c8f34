package session

import (
	"context"
	"time"

	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const (
	// stepTimeout bounds each step of ending a turn that has stalled.
	stepTimeout = 10 * time.Second
	// reloadTimeout bounds loading a session for its waiters, the start of a runtime included.
	reloadTimeout = 2 * time.Minute
)

// Watchdog ends turns of a session that make no progress within their time limits. Each turn always has one owner that
// ends it:
//
//   - Until the CLI has accepted the message: the call that sends it.
//   - In a runtime: the CLI's events. If none arrives for the limit, the Watchdog asks the CLI whether the turn
//     still has work, and ends the turn if it has none.
//   - Without a runtime: the load of the session. If no load happens for the limit, the Watchdog loads the
//     session.
//
// The machine of the session's turns records that one goroutine is ending a turn, so that there is only one at a time.
// The goroutine ends within a few minutes or with the host.
type Watchdog struct{ s *Session }

// Check ends turns and waits that have made no progress within their time limits. The bridge calls
// it every few seconds; it does not wait for the CLI.
func (w *Watchdog) Check() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	machine, loaded := w.s.turns.machine, w.s.loader.state == Loaded
	switch now := time.Now(); {
	case loaded && machine.Overdue(now, w.s.callbacks.Registry().Len() > 0):
		machine.SetStalling(true)
		rt, last := w.s.loader.runtime, machine.LastEvent()
		w.s.host.Go(func(ctx context.Context) { w.endStalled(ctx, rt, last) })
	case !loaded && machine.Deserted(now):
		machine.SetStalling(true)
		w.s.host.Go(w.reloadForWaiters)
	}
}

// endStalled gives up the turn that has been silent since last, unless the CLI says that
// something goes on.
func (w *Watchdog) endStalled(ctx context.Context, rt Runtime, last time.Time) {
	working := w.stillActive(ctx, rt)
	w.s.mu.Lock()
	machine := w.s.turns.machine
	heard := w.s.loader.runtime != rt || !machine.Busy() || machine.LastEvent() != last
	if working && !heard {
		machine.Heard(time.Now())
	}
	if working || heard {
		machine.SetStalling(false)
		w.s.mu.Unlock()
		return
	}
	if machine.AtRest() {
		w.s.turns.carryOut(machine.Rest(w.s.journal.Last()))
		w.s.mu.Unlock()
		return
	}
	w.s.mu.Unlock()
	w.s.host.Logger().Warn("turn stalled", "session_id", w.s.id, "silent_since", last)
	w.abortStalled(ctx, rt)
}

// stillActive asks the CLI whether what is believed to be outstanding in the turn is, and whether
// something runs in the background.
func (w *Watchdog) stillActive(ctx context.Context, rt Runtime) bool {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	// The missed callbacks are now requested again or withdrawn, and the time limit begins again.
	if asked, withdrawn, err := w.s.reconciler.pending(ctx, rt); asked+len(withdrawn) > 0 && err == nil {
		return true
	}
	w.s.mu.Lock()
	asking, machine := w.s.callbacks.Registry().Len() > 0, w.s.turns.machine
	tools, missing := machine.ToolsRun(), machine.Missing()
	w.s.mu.Unlock()
	if asking { // each callback has its deadline
		return true
	}
	if tools || missing {
		works, err := w.s.agentWorks(ctx, rt, true)
		if tools && works && err == nil || missing && (works || err != nil) {
			return true
		}
	}
	run, err := w.s.tasksIn(ctx, rt, "running")
	return run && err == nil
}

// reloadForWaiters loads a session that has waiters, so that its history shows what became of their
// turns, and ends the waiting where that fails.
func (w *Watchdog) reloadForWaiters(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	_, err := w.s.loader.Load(ctx)
	if err == nil || ctx.Err() == nil {
		w.GiveUp(ctx, err)
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.turns.machine.SetStalling(false)
	if err == nil {
		return
	}
	w.s.host.Logger().Warn("loading a session with waiting calls failed", "session_id", w.s.id, "error", err)
	if w.s.loader.state != Loaded {
		w.s.turns.lose(bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST)
	}
}

// abortStalled has the CLI abort a turn that has stalled, so that the next message does not wait
// behind it. If that does not bring the session to rest, the session is unloaded: the next load
// begins with a fresh one.
func (w *Watchdog) abortStalled(ctx context.Context, rt Runtime) {
	rest := w.s.turns.expect(nil)
	defer rest.Close()
	w.s.mu.Lock()
	machine := w.s.turns.machine
	machine.AwaitRest(rest.state)
	machine.Abandon()
	w.s.mu.Unlock()
	w.s.loader.setInternal(true)
	defer w.s.loader.setInternal(false)
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	_, _, err := w.s.call(ctx, rt, "session.abort", nil)
	if err == nil {
		select {
		case <-rest.state.Done():
			return
		case <-ctx.Done():
		}
	}
	w.s.mu.Lock()
	if w.s.loader.runtime != rt || !machine.Stalling() {
		w.s.mu.Unlock()
		return
	}
	w.s.turns.carryOut(machine.GiveUp(w.s.journal.Last()))
	w.s.mu.Unlock()
	w.s.host.Logger().Warn("aborting a stalled turn failed, loading the session again", "session_id", w.s.id, "error", err)
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), stepTimeout)
	defer cancel()
	if err := w.s.loader.drop(ctx, rt); err != nil {
		w.s.host.Logger().Warn("unloading a session failed", "session_id", w.s.id, "error", err)
	}
	w.s.mu.Lock()
	waited := w.s.loader.state != Loaded && machine.Waiting()
	w.s.mu.Unlock()
	if waited { // for a message that came meanwhile
		w.reloadForWaiters(context.WithoutCancel(ctx))
	}
}

// GiveUp notes that the bridge stops trying to load the session, because of an error, and resolves
// the messages that a load would have resolved. The session is still loaded when a call needs it. Without an error GiveUp
// does nothing: the load has resolved them, and if its runtime has ended since, another load does.
func (w *Watchdog) GiveUp(ctx context.Context, err error) {
	if err == nil {
		return
	}
	_ = w.s.loader.exclusive(ctx, func() error { // fails when ctx has ended
		var found fates
		if w.s.loader.State() == Unloaded {
			found = w.s.prompts.lookUp(ctx, nil, err)
		}
		w.s.prompts.resolve(ctx, found)
		w.s.update(func() {
			if w.s.loader.state == Unloaded { // a load may have begun a turn before its runtime ended
				w.s.turns.lose(bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST)
			}
		})
		return nil
	})
}
