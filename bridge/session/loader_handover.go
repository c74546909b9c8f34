package session

import (
	"context"
	"errors"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/backend"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

const (
	// leavingRetry is when a call tries again that came while its session left this server.
	leavingRetry = 200 * time.Millisecond
	// quietFor is how long a quiet session has had no event and no call.
	quietFor = 10 * time.Second
	// storeTimeout bounds the wait of a session that leaves for the storage of its last events. Calls wait meanwhile.
	storeTimeout = 2 * time.Second
)

// HandOver ends the use of the session here, because another server is to continue it, and reports whether it did. It
// does so only for a session at rest, which has no turn, prompt, call, pending callback, satellite or background work,
// and whose events and outbox are stored within some seconds: the other server would not know the end of a turn.
// With quiet, the session must have no participant and no subscriber either, and have been idle for ten seconds.
// HandOver calls save when nothing changes the session any more; if that fails, the session stays. Then the frames of the
// session end with DRAINING, so that their readers continue elsewhere, and the session is Deleted in memory: the caller
// must drop it. The participants keep their grace time.
func (l *Loader) HandOver(ctx context.Context, quiet bool, save func() error) (bool, error) {
	if err := l.lifecycle.acquire(ctx); err != nil {
		return false, err
	}
	defer l.lifecycle.release()
	var idle time.Duration
	if quiet {
		idle = quietFor
	}
	l.s.mu.Lock()
	state, watched := l.state, quiet && l.hasCompany()
	l.s.mu.Unlock()
	if watched {
		return false, nil
	}
	if state == Loaded {
		if unloaded, err := l.unload(ctx, idle); err != nil || !unloaded {
			return false, err
		}
	}
	if !l.beginHandOver(quiet) {
		return false, nil
	}
	err := l.storeRest(ctx)
	if err == nil {
		err = save()
	}
	if err != nil {
		l.cancelHandOver()
		return false, context.Cause(ctx) // nil: the session is in use for as long as its events or its state wait
	}
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.state = Deleted
	l.s.journal.Note(Ended{bridgev1.CloseReason_CLOSE_REASON_DRAINING})
	return true, nil
}

// hasCompany reports whether the session has participants or subscribers. The caller holds the session's lock.
func (l *Loader) hasCompany() bool {
	return l.s.roster.Len() > 0 || l.s.journal.Watched()
}

// beginHandOver makes the session refuse all use if it is at rest in no runtime, and reports whether it did.
func (l *Loader) beginHandOver(quiet bool) bool {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.handingOver = l.uses == 0 && l.atRest() && !(quiet && l.hasCompany())
	return l.handingOver
}

// cancelHandOver takes beginHandOver back.
func (l *Loader) cancelHandOver() {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.handingOver = false
}

// storeRest waits until the events of the session are stored, and then stores what its outbox has in memory only: the next
// owner would send a prompt again whose turn has ended, if the history does not have it.
func (l *Loader) storeRest(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	if err := l.s.journal.AwaitShown(ctx); err != nil {
		return err
	}
	l.s.prompts.Outbox().TurnsStored(l.s.journal.Shown())
	if err := l.s.prompts.Outbox().Flush(); err != nil && !errors.Is(err, backend.ErrStale) { // then another one has it
		return err
	}
	return nil
}
