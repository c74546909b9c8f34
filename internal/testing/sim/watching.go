package sim

import (
	"context"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
)

// watching says whether a caller of WatchPending handles questions and permissions.
type watching uint8

const (
	unwatched watching = iota
	turning            // the CLI may know of the caller, or not
	watched
)

// watchedMethods are those that the caller handles.
var watchedMethods = []string{askUser, callback.PermissionRequested, callback.CommandExecute}

// Watched implements session.Host.
func (h host) Watched(map[string]string) []string {
	if h.w.watcher.Load() {
		return watchedMethods
	}
	return nil
}

// watch has a caller of WatchPending come, or go, and the session told of that, as package inbox does it.
func (w *world) watch() {
	w.mu.Lock()
	if w.watching == turning {
		w.mu.Unlock()
		return
	}
	next := watched
	if w.watching == watched {
		next = unwatched
	}
	w.watching = turning
	w.watcher.Store(next == watched)
	w.note("a caller watches the pending callbacks: %v", next == watched)
	w.changes++
	w.orphan()
	l := w.life
	w.mu.Unlock()
	w.do(func() error {
		ctx, cancel := context.WithTimeout(l.ctx, refreshTimeout)
		defer cancel()
		err := l.s.Participants().Refresh(ctx)
		w.mu.Lock()
		defer w.mu.Unlock()
		if err == nil && w.lives(l) {
			w.watching = next
		}
		return nil
	})
}
