package prompt

import (
	"context"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// oneOffGrace is how long the session of a Run with a request id outlives the turn. During this time
// a repeated Run finds its outcome.
const oneOffGrace = time.Minute

// oneOff deletes a session that Run made for one turn. It does so when the turn has ended, the
// session was disconnected and no Run streams it any more; after the grace, if there is one.
// A server that is killed before leaves the session behind. A nil oneOff deletes nothing.
type oneOff struct {
	svc *Service
	s   *session.Session
	// as carries the caller of the Run, who deletes the session. It does not end.
	as    context.Context //nolint:containedctx // it outlives the call, and only names the caller
	grace time.Duration

	mu      sync.Mutex
	users   int  // the turn, until the session is disconnected, and each Run that streams it
	waiting bool // a goroutine waits for the grace to pass
	gone    bool // it is being deleted
}

// enter keeps the session while a Run streams it. It returns false when it is too late.
func (o *oneOff) enter() bool {
	if o == nil {
		return true
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone {
		return false
	}
	o.users++
	return true
}

// leave ends the use by a Run or by the turn. The last one deletes the session, or has it deleted after the grace.
func (o *oneOff) leave() {
	if o == nil {
		return
	}
	o.mu.Lock()
	o.users--
	due := o.users == 0 && !o.waiting
	switch {
	case !due:
	case o.grace == 0:
		o.gone = true
	default:
		due, o.waiting = false, true
		o.svc.cfg.Shutdown.Go(o.wait)
	}
	o.mu.Unlock()
	if due {
		o.remove()
	}
}

// wait deletes the session after the grace, or when the bridge ends. A Run that came back in
// the meantime begins the grace anew when it leaves.
func (o *oneOff) wait(ctx context.Context) {
	timer := time.NewTimer(o.grace)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	o.mu.Lock()
	o.waiting = false
	due := o.users == 0
	o.gone = due
	o.mu.Unlock()
	if due {
		o.remove()
	}
}

// remove deletes the session, unless a caller has resumed or deleted it meanwhile.
func (o *oneOff) remove() {
	if o.s.Loader().State() != session.Disconnected {
		return
	}
	ctx, cancel := context.WithTimeout(o.as, closeTimeout)
	defer cancel()
	if err := o.svc.cfg.Opener.Delete(ctx, o.s.ID()); err != nil {
		o.svc.cfg.Log.Warn("deleting the session of a run failed", "session_id", o.s.ID(), "error", err)
		return
	}
	o.svc.runs.forget(o.s.Key())
}
