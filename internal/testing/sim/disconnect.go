package sim

import (
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// disconnect has a caller end the use of the session, two of three times also if there are participants. Half of these
// callers open it again at once. Without a message no process could resume the session: then nobody does it.
func (w *world) disconnect(n int) {
	w.mu.Lock()
	if w.clients.changing || !w.disk.known {
		w.mu.Unlock()
		return
	}
	for _, p := range w.prompts {
		p.disconnected = p.disconnected || !p.over
	}
	w.disconnects++
	w.disconnecting++
	w.stop.called = true
	l := w.life
	w.mu.Unlock()
	w.do(func() error {
		done, err := l.s.Loader().Disconnect(l.ctx, n%3 > 0)
		w.mu.Lock()
		defer w.mu.Unlock()
		if !w.lives(l) {
			return nil
		}
		w.note("the session is disconnected: %v %v", done, err)
		if done && w.refuse() { // as package manage saves it before the caller is told
			w.stop.called = w.stop.called || w.savedEnd()
			return nil
		}
		w.disconnecting--
		if done {
			w.stop.done, w.stop.called = true, true
			w.leaveAll()
		}
		return nil // a hung process does not say in time whether it has done it
	})
	if n%2 == 0 {
		w.open()
	}
}

// leaveAll notes that no participant is left. The caller holds the world's lock.
func (w *world) leaveAll() {
	w.changes++
	for _, s := range w.seats {
		if s.token = ""; s.presence != joining { // who is joining tries again
			s.presence = gone
		}
	}
	w.orphan()
}

// open has a caller open the session again if it is disconnected.
func (w *world) open() {
	if w.s.Loader().State() == session.Disconnected {
		w.configure(0)
	}
}

// isGone reports whether an error may say that the session is disconnected. The caller holds the world's lock.
func (w *world) isGone(err error) bool {
	return w.disconnects > 0 && fault.ReasonOf(err) == fault.SessionNotFound || w.isLeaving(err)
}
