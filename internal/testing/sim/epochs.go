package sim

import (
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
)

// epochs is what the run knows of the reasons for which the journal may begin a new epoch.
type epochs struct {
	// reason: the record of the process that loads the session lacks a message that the reader has got, or has an event that
	// the reader lacks before one that the reader has.
	reason bool
	// left are the messages that the record lacked when a process had loaded the session, and that no later load may be about.
	left map[journal.ID]bool
}

// begins notes that a process loads the session. The caller holds the world's lock.
func (w *world) begins(c *cli) {
	e := &w.epochs
	e.reason = w.reader.away || w.release != nil || e.lacked(w, c) // a disk that hangs keeps events from the reader
}

// lacked reports whether the record contradicts what the reader has got. A message that an earlier record has lacked is none.
func (e *epochs) lacked(w *world, c *cli) bool {
	for id := range w.reader.said {
		if _, seen := w.reader.seen[id]; seen && !e.left[id] && !c.has(id) {
			return true
		}
	}
	lacks := false
	for _, one := range c.events {
		_, seen := w.reader.seen[one.journalID()]
		if lacks = lacks || !seen; lacks && seen {
			return true
		}
	}
	return false
}

// has reports whether the process has an event.
func (c *cli) has(id journal.ID) bool {
	for _, e := range c.events {
		if e.isMessage() && e.journalID() == id {
			return true
		}
	}
	return false
}

// checkEpochs notes that a process has loaded the session: what its record lacks was decided.
func (w *world) checkEpochs() {
	loaded := w.s.Loader().State() == session.Loaded
	w.mu.Lock()
	defer w.mu.Unlock()
	if !loaded || w.reader.away || w.cli == nil || !w.cli.loaded {
		return
	}
	left := map[journal.ID]bool{}
	for id := range w.reader.said {
		left[id] = !w.cli.has(id)
	}
	w.epochs = epochs{left: left}
}
