package sim

import (
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// handover is what is known of the moves of the session to other servers.
type handover struct {
	underway int
	tried    bool
	// left: the session has left, and the next server has not begun.
	left bool
	// orderly: the process of the bridge has what another one has saved when the session left it.
	orderly bool
	times   int
}

// handOver has another server continue the session, if it is at rest; two of three times only if nobody uses it.
func (w *world) handOver(n int) {
	w.mu.Lock()
	if w.saved == nil || w.variant == 0 || w.failed || w.life.ended != nil || w.deletion.underway > 0 || w.handover.underway > 0 {
		w.mu.Unlock()
		return
	}
	w.handover.tried = true
	w.handover.underway++
	l := w.life
	w.mu.Unlock()
	w.do(func() error {
		left, err := l.s.Loader().HandOver(l.ctx, n%3 > 0, func() error { w.leaves(l); return nil })
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.lives(l) {
			w.note("the session leaves: %v %v", left, err)
			w.handover.underway--
			w.handover.left = left
		}
		return nil // a hung process does not say in time whether it can be unloaded
	})
}

// leaves checks that the session is at rest, and saves it.
func (w *world) leaves(l *life) {
	w.checkRest(l)
	text, secret := l.s.Save(nil, nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.lives(l) {
		return
	}
	w.state, w.dirty = text, false
	w.stores(text, secret)
}

// checkRest checks that nothing of the session is left to do, and that no process has it, but one for whose reply to the load the
// bridge did not wait.
func (w *world) checkRest(l *life) {
	turn, callbacks, outbox := l.s.Turns().Running(), l.s.Callbacks().Registry().Len(), l.s.Prompts().Outbox()
	w.mu.Lock()
	has := w.lives(l) && w.cli != nil && w.cli.loaded && !slices.ContainsFunc(w.cli.replies, func(text string) bool {
		return strings.Contains(text, loaded)
	})
	w.mu.Unlock()
	if turn || callbacks > 0 || !outbox.Empty() || has {
		w.fail("the session is not at rest: turn %v, %d callbacks, %d prompts, loaded %v", turn, callbacks, len(outbox.Entries()), has)
	}
}

// moveOn begins the next process of the bridge behind one that the session has left.
func (w *world) moveOn() {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.handover.left || w.life.ended != nil {
		return
	}
	w.handover.times++
	w.leave()
	w.handover.orderly = true
}

// rest has a caller do something that needs the session to be at rest, as an export.
func (w *world) rest() {
	l, began := w.life, time.Now()
	idle := func() bool {
		return l.s.Loader().State() == session.Loaded && !l.s.Turns().Running() && l.s.Callbacks().Registry().Len() == 0 && l.s.Prompts().Outbox().Empty()
	}
	was, prompts, callbacks := idle(), len(w.prompts), len(w.order)
	w.do(func() error {
		rests := false
		err := l.s.AtRest(l.ctx, func() error {
			rests = true
			w.checkRest(l)
			return nil
		})
		is := idle()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.note("at rest: %v", err)
		if err == nil && !rests && w.lives(l) {
			w.failures = append(w.failures, "a caller who needs the session to be at rest has done nothing")
		}
		if fault.ReasonOf(err) == fault.SessionBusy && was && is && prompts == len(w.prompts) && callbacks == len(w.order) && time.Since(began) < restPatience {
			w.failures = append(w.failures, "a session is said to be busy that had nothing to do: "+err.Error())
		}
		return nil
	})
}

// restPatience is for how long who needs a session to be at rest waits for a CLI that is about to be.
const restPatience = 2 * time.Second

// isLeaving reports whether an error may say that the session leaves. The caller holds the world's lock.
func (w *world) isLeaving(err error) bool {
	return w.handover.tried && fault.ReasonOf(err) == fault.SessionUnavailable
}

// checkWanted checks that a session is to be loaded again, whose process has ended, if it has something to do or is used.
func (w *world) checkWanted(l *life, before *bridgev1.Session, wanted bool) {
	if before.State != bridgev1.SessionState_SESSION_STATE_LOADED || l.s.Loader().State() != session.Unloaded {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	used := !w.reader.away || len(before.Participants) > 0
	works := !l.s.Prompts().Outbox().Empty() || l.s.Callbacks().Registry().Len() > 0
	switch {
	case !w.lives(l) || w.deletion.underway > 0:
	case wanted && !used && !works && !before.TurnRunning:
		w.failures = append(w.failures, "a session is to be loaded at once that nobody uses")
	case !wanted && (used || works || w.turns.open):
		w.failures = append(w.failures, "a session is not to be loaded at once that is used")
	}
}

// checkLeaves: a session with nothing to do can leave, and readers are told.
func (w *world) checkLeaves() {
	if w.handover.tried && w.s.Loader().State() != session.Deleted {
		before := w.handover.times
		ready := func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.handover.underway+len(w.calls) == 0
		}
		for range reviveTries { // it is not while something else is done with the session
			w.settle(ready)
			w.handOver(0)
			w.settle(ready)
			w.restart(0)
			if w.handover.times > before {
				break
			}
			w.pass(hangs[0])
		}
		w.mu.Lock()
		can := w.saved != nil && w.variant != 0 && !w.failed && (w.cli == nil || len(w.cli.satellites) == 0) // these stay with their process
		w.mu.Unlock()
		if can && w.handover.times == before {
			w.fail("the session cannot leave, and has nothing to do")
		}
	}
	told := 0
	for _, reason := range w.noted.ends {
		if reason == bridgev1.CloseReason_CLOSE_REASON_DRAINING {
			told++
		}
	}
	if w.reader.gaps+w.reader.returns+w.owner.losses == 0 && (told < w.handover.times || told > w.handover.times && !w.clustered) { // a replica may end behind that
		w.fail("readers are told %d times that the session goes on elsewhere, of %d", told, w.handover.times)
	}
}

// away has the reader go, or come back.
func (w *world) away() {
	w.mu.Lock()
	if w.deletion.underway > 0 { // for which it has gone
		w.mu.Unlock()
		return
	}
	w.turns.forget() // it misses notes
	w.reader.returns++
	away := !w.reader.away
	w.reader.away = away
	l := w.life
	w.mu.Unlock()
	if away {
		l.unfollow()
		synctest.Wait()
		w.mu.Lock()
		w.turns.forget()
		w.mu.Unlock()
	} else {
		w.follow()
		synctest.Wait()
	}
}
