package session

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/roster"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// RuntimeLost handles the end of a runtime that had the session loaded. It reports whether the session should be
// loaded again at once, because it had a turn, prompts or pending callbacks, or has participants or subscribers.
func (l *Loader) RuntimeLost(rt Runtime, cause error) (wanted bool) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.runtime != rt || l.state != Loaded {
		return false
	}
	l.detach(Unloaded)
	l.s.turns.machine.Heard(time.Now()) // the time limit for a load begins now
	outcome := l.s.turns.lose(bridgev1.TurnStatus_TURN_STATUS_RUNTIME_LOST)
	fleeting := func(p *callback.Pending) bool { return !p.Kind.Survives }
	l.s.callbacks.Withdraw(fleeting, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_RUNTIME_LOST)
	l.s.journal.Note(Restarted{Turn: outcome, Cause: cause.Error()})
	waiting := outcome != nil || !l.s.prompts.Outbox().Empty() || l.s.callbacks.Registry().Len() > 0
	return waiting || l.s.roster.Len() > 0 || l.s.journal.Watched()
}

// Disconnect ends the use of the session: the CLI closes it, and only a resume opens it again. Without force,
// Disconnect does nothing while participants are attached. It reports whether the session is disconnected.
func (l *Loader) Disconnect(ctx context.Context, force bool) (bool, error) {
	return l.disconnect(ctx, func(*roster.Participant) bool { return !force })
}

// DisconnectWith is Disconnect without force for a leaving participant, which does not count as attached. The
// participant stays in the roster until the CLI has closed the session, since the CLI may ask it callbacks
// meanwhile.
func (l *Loader) DisconnectWith(ctx context.Context, leaving *roster.Participant) (bool, error) {
	return l.disconnect(ctx, func(p *roster.Participant) bool { return p != leaving })
}

// disconnect ends the use of the session unless prevents returns true for a participant.
func (l *Loader) disconnect(ctx context.Context, prevents func(*roster.Participant) bool) (bool, error) {
	if err := l.lifecycle.acquire(ctx); err != nil {
		return false, err
	}
	defer l.lifecycle.release()
	l.s.mu.Lock()
	state, rt := l.state, l.runtime
	attached := l.s.roster.Any(prevents)
	l.s.mu.Unlock()
	switch {
	case attached:
		return false, nil
	case state == Disconnected: // by another participant that left at the same time
		return true, nil
	}
	if state == Loaded {
		ctx, cancel := l.lingering(ctx)
		defer cancel()
		defer l.s.prompts.pause(ctx)()
		l.s.participants.leaveSatellites(ctx)
		_, _, err := l.s.call(ctx, rt, "session.destroy", nil)
		if reason := fault.ReasonOf(err); err != nil && reason != fault.SessionNotFound && reason != fault.RuntimeLost {
			return false, err
		}
	}
	if state != Deleted {
		if err := l.confirmEnd(ctx, rt); err != nil {
			return false, err
		}
		l.s.audit.did(ctx, "session.disconnect", nil)
		l.end(Disconnected)
	}
	return true, nil
}

// Delete deletes the session and the CLI's files of it. That the CLI has no files to delete is no error: the session may have no
// history, or a CLI process has ended amid an earlier deletion. Nor is another refusal if a caller stores its files; the caller keeps
// them. A refused deletion changes nothing.
func (l *Loader) Delete(ctx context.Context, storedByCaller bool) error {
	return l.delete(ctx, storedByCaller, l.usable)
}

// DeleteUnused is Delete for a session that is not in use. It fails with SESSION_BUSY for any other.
func (l *Loader) DeleteUnused(ctx context.Context, storedByCaller bool) error {
	return l.delete(ctx, storedByCaller, func() error {
		if err := l.usable(); err != nil {
			return err
		}
		return l.unloadUnused(ctx)
	})
}

// unloadUnused unloads the session if a runtime has it, so that calls wait for the lifecycle lock, which the caller
// holds. It fails with SESSION_BUSY if the session is in use.
func (l *Loader) unloadUnused(ctx context.Context) error {
	l.s.mu.Lock()
	loaded := l.state == Loaded
	l.s.mu.Unlock()
	unused := !l.InUse()
	if unused && loaded {
		unloaded, err := l.unload(ctx, 0)
		if err != nil {
			return err
		}
		unused = unloaded && !l.InUse()
	}
	if !unused {
		return fault.New(fault.SessionBusy, "session %q is in use", l.s.id).
			WithField("session_id").With("session_id", l.s.id)
	}
	return nil
}

// InUse reports whether the session is being created, or has a call, a participant, a subscriber, a turn, a prompt or a
// pending callback.
func (l *Loader) InUse() bool {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.state == Creating || l.uses > 0 || l.hasCompany() || !l.nothingToDo()
}

// delete deletes the session if check, which is called with the lifecycle lock held, permits it.
func (l *Loader) delete(ctx context.Context, storedByCaller bool, check func() error) (err error) {
	defer func() { l.s.audit.did(ctx, "session.delete", err) }()
	if err := l.lifecycle.acquire(ctx); err != nil {
		return err
	}
	defer l.lifecycle.release()
	if err := check(); err != nil {
		return err
	}
	rt, err := l.s.host.Runtime(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := l.lingering(ctx)
	defer cancel()
	defer l.s.prompts.pause(ctx)()
	result, _, err := l.s.call(ctx, rt, "session.delete", nil)
	if err != nil {
		return err
	}
	if err := Refused(result, "session.delete"); err != nil && !storedByCaller && !hasNoFiles(err) {
		l.closedIn(ctx, rt, err)
		return err
	}
	if err := l.confirmEnd(ctx, rt); err != nil {
		return err
	}
	l.end(Deleted)
	return nil
}

// confirmEnd stores, before callers and readers know it, that the use of the session ends, if another process may continue the
// session. It fails if another one has, where the session goes on, or if the storage does not take the end in time. Then the
// session goes on here, where its runtime has closed it.
func (l *Loader) confirmEnd(ctx context.Context, rt Runtime) error {
	if !l.s.journal.Remote() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, storedTimeout)
	defer cancel()
	if err := l.s.awaitStored(ctx); err != nil { // behind what readers are to know before that
		l.closed(rt, err)
		return err
	}
	l.setEnding(true)
	err := storing(ctx, l.s.host.Store)
	if err == nil {
		return nil
	}
	l.setEnding(false)
	if !errors.Is(err, backend.ErrStale) {
		l.closed(rt, err)
	}
	return err
}

// setEnding has what is saved of the session say that its use ends, or not: the storage may have taken what it seemed to refuse.
func (l *Loader) setEnding(on bool) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.ending = on
	l.s.markDirty()
}

// closedIn handles a deletion that the runtime has refused: it closes a session that it has before it removes the files, and
// may then be unable to remove them. The session goes on as after the end of a runtime.
func (l *Loader) closedIn(ctx context.Context, rt Runtime, cause error) {
	l.s.mu.Lock()
	here := l.state == Loaded && l.runtime == rt
	l.s.mu.Unlock()
	if !here {
		return
	}
	if _, _, err := l.s.call(ctx, rt, "session.metadata.activity", nil); fault.ReasonOf(err) != fault.SessionNotFound {
		return
	}
	l.closed(rt, cause)
}

// closed handles that a runtime has closed the session, whose use has not ended, as the end of the runtime.
func (l *Loader) closed(rt Runtime, cause error) {
	if rt == nil {
		return
	}
	rt.Unroute(l.s)
	if l.RuntimeLost(rt, cause) {
		l.s.host.Go(func(ctx context.Context) {
			_, err := l.Load(ctx)
			l.s.watchdog.GiveUp(ctx, err)
		})
	}
}

// hasNoFiles reports whether the CLI has refused a deletion because it has nothing to delete.
func hasNoFiles(err error) bool { return strings.Contains(err.Error(), "Session file not found") }

// Evict marks a disconnected session as Deleted in memory, so that its owner can drop it, and reports whether it
// did. It does nothing while a call holds the lifecycle lock, such as a resume. After true the session must
// not be used.
func (l *Loader) Evict() bool {
	if !l.lifecycle.tryAcquire() {
		return false
	}
	defer l.lifecycle.release()
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	if l.state != Disconnected {
		return false
	}
	l.state = Deleted
	return true
}

// end sets the state Disconnected or Deleted, ends the turn and the callbacks, and removes all participants. Readers and watchers
// know it before the prompts have left the disk, which may hang.
func (l *Loader) end(state State) {
	reason, change := bridgev1.CloseReason_CLOSE_REASON_DISCONNECTED, bridgev1.SessionChange_SESSION_CHANGE_DISCONNECTED
	if state == Deleted {
		reason, change = bridgev1.CloseReason_CLOSE_REASON_DELETED, bridgev1.SessionChange_SESSION_CHANGE_DELETED
	}
	l.s.update(func() {
		if l.runtime != nil {
			l.runtime.Unroute(l.s)
		}
		l.detach(state)
		l.ending = false
		l.s.roster.Clear()
		l.endWork()
		l.s.journal.Note(Ended{reason})
	})
	l.s.host.Changed(change)
	l.s.prompts.flush()
}

// detach clears what the session has of its runtime, and sets its state. The caller holds the session's lock.
func (l *Loader) detach(state State) {
	l.s.ingester.end()
	l.s.models.dropAll()
	l.s.participants.closeSatellites()
	l.s.participants.unloaded()
	l.state, l.runtime = state, nil
	l.s.sender.runtimeEnded()
}

// endWork ends the turn, the prompts and the callbacks. The caller holds the session's lock, and afterwards calls
// prompts.flush without it.
func (l *Loader) endWork() {
	l.s.markDirty()
	l.s.turns.lose(bridgev1.TurnStatus_TURN_STATUS_ABORTED)
	l.s.prompts.Clear()
	l.s.prompts.leaveInterrupted()
	every := func(*callback.Pending) bool { return true }
	l.s.callbacks.Withdraw(every, bridgev1.CallbackOutcome_CALLBACK_OUTCOME_SESSION_ENDED)
}
