package inbox

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
)

const (
	// refreshWorkers bounds the sessions that are refreshed at once.
	refreshWorkers = 4
	// refreshTimeout bounds the refresh of one session.
	refreshTimeout = time.Minute
)

// refresher tells sessions that their handlers have changed, on at most refreshWorkers goroutines of run. These end
// when no session waits. A session that is marked several times is refreshed once after the last mark.
type refresher struct {
	run     func(f func(ctx context.Context)) bool
	refresh func(ctx context.Context, e *sessions.Entry) error
	log     *slog.Logger

	mu      sync.Mutex
	dirty   map[*sessions.Entry]struct{}
	workers int
}

// mark schedules the refresh of sessions. It does not block.
func (r *refresher) mark(entries ...*sessions.Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dirty == nil {
		r.dirty = map[*sessions.Entry]struct{}{}
	}
	for _, e := range entries {
		r.dirty[e] = struct{}{}
	}
	for r.workers < min(refreshWorkers, len(r.dirty)) {
		r.workers++
		r.run(r.work)
	}
}

// work refreshes sessions until none waits.
func (r *refresher) work(ctx context.Context) {
	for {
		e := r.next()
		if e == nil {
			return
		}
		limited, cancel := context.WithTimeout(ctx, refreshTimeout)
		if err := r.refresh(limited, e); err != nil {
			r.log.Warn("the CLI did not accept a change of the handlers of callbacks",
				"session_id", e.Session.ID(), "error", err)
		}
		cancel()
	}
}

// next takes a session that waits; nil ends the worker.
func (r *refresher) next() *sessions.Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	for e := range r.dirty {
		delete(r.dirty, e)
		return e
	}
	r.workers--
	return nil
}
