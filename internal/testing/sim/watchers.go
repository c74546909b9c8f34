package sim

import (
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// watchers is what callers know who watch sessions: they look at the session when it is said to have changed.
type watchers struct {
	changed bool // since they have looked
	view    view
	count   int // changes in all
}

// view has the members of a session of which watchers are told each change.
type view struct {
	running bool
	open    bool // neither disconnected nor deleted
	summary string
}

// Changed implements session.Host. Like the host of the bridge it takes the session's lock for an end of the session's use.
func (h host) Changed(what bridgev1.SessionChange) {
	if what == bridgev1.SessionChange_SESSION_CHANGE_DISCONNECTED || what == bridgev1.SessionChange_SESSION_CHANGE_DELETED {
		h.s.Loader().State()
	}
	h.hears(func() { h.w.watchers.changed = true; h.w.watchers.count++ })
}

// look returns what the session shows.
func (w *world) look() view {
	s := w.s.Snapshot()
	return view{s.TurnRunning, s.State != bridgev1.SessionState_SESSION_STATE_DISCONNECTED, s.Summary}
}

// checkWatched: who watches knows of each turn that an event has begun, of each end of a turn and of the session's use, and of
// its summary. While the reader has seen a turn begin and not end, it runs.
func (w *world) checkWatched() {
	now := w.look()
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.lives(w.life) || w.owner.lost || w.owner.left { // who watches looks at the next owner
		return
	}
	if w.watchers.changed {
		w.watchers.changed, w.watchers.view = false, now
	}
	if known := w.watchers.view; known.running && !now.running || known.open != now.open || known.summary != now.summary {
		w.failures = append(w.failures, "watchers are not told of a change")
		w.watchers.view = now
	}
	if w.turns.open && !w.failed && !(now.running && w.watchers.view.running) {
		w.failures = append(w.failures, "a turn runs, and the session does not show it, or watchers are not told")
	}
}
