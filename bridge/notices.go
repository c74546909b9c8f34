package bridge

import (
	"bytes"
	"context"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/internal/caller"
	"github.com/copilot-grpc/copilot-grpc/internal/leaving"
)

// noticeQueue bounds the notices that wait for one watcher; past it the oldest go, and are
// counted.
const noticeQueue = 1024

// notices are what CLI processes tell beside the events of sessions, for those who watch it.
type notices struct {
	mu       sync.Mutex
	watchers map[*noticeWatcher]struct{}
}

// noticeWatcher is a stream of notices. The lock of all guards it.
type noticeWatcher struct {
	tenant  string
	session string // empty for all
	signal  chan struct{}
	waiting []notice
	lost    int64
}

// notice is one of them.
type notice struct {
	runtime string
	params  []byte
	bridge  bool  // the bridge caused it
	lost    int64 // before it
}

// watched reports whether anybody would be told.
func (n *notices) watched() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.watchers) > 0
}

// take hands a notice about a session, or about none, to the watchers. It runs on the
// connection's reader.
func (n *notices) take(bind *binding, sessionID string, params []byte, ofBridge bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	params = bytes.Clone(params)
	for w := range n.watchers {
		if w.tenant != bind.profile.Tenant || w.session != "" && w.session != sessionID {
			continue
		}
		if len(w.waiting) >= noticeQueue {
			w.lost += 1 + w.waiting[0].lost
			w.waiting = w.waiting[1:]
		}
		w.waiting = append(w.waiting, notice{runtime: bind.id, params: params, bridge: ofBridge})
		select {
		case w.signal <- struct{}{}:
		default:
		}
	}
}

func (n *notices) add(tenant, sessionID string) *noticeWatcher {
	w := &noticeWatcher{tenant: tenant, session: sessionID, signal: make(chan struct{}, 1)}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.watchers == nil {
		n.watchers = map[*noticeWatcher]struct{}{}
	}
	n.watchers[w] = struct{}{}
	return w
}

func (n *notices) remove(w *noticeWatcher) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.watchers, w)
}

// drain takes what waits for a watcher.
func (n *notices) drain(w *noticeWatcher) []notice {
	n.mu.Lock()
	defer n.mu.Unlock()
	waiting := w.waiting
	if len(waiting) > 0 {
		waiting[0].lost, w.lost = w.lost, 0
	}
	w.waiting = nil
	return waiting
}

// watchNotices sends the caller the notices about a session, or all, from now on, and nil
// as a sign of life: at first, and in pauses.
func (b *Bridge) watchNotices(ctx context.Context, n *notices, sessionID string, interval *durationpb.Duration, send func(*notice) error) error {
	every, err := heartbeat(interval, "heartbeat_interval")
	if err != nil {
		return err
	}
	if sessionID != "" {
		if err := checkID(sessionID, "session_id"); err != nil {
			return err
		}
	}
	w := n.add(caller.From(ctx).Tenant, sessionID)
	defer n.remove(w)
	beat := time.NewTicker(every)
	defer beat.Stop()
	gone := leaving.From(ctx).Away
	err = send(nil)
	for err == nil {
		select {
		case <-w.signal:
			for _, one := range n.drain(w) {
				if err = send(&one); err != nil {
					break
				}
			}
		case <-beat.C:
			err = send(nil)
		case <-b.draining:
			return nil
		case <-gone:
			return nil // as when the server drains: the caller watches again on another connection
		case <-ctx.Done():
			return session.Classify(ctx.Err(), "")
		}
	}
	return err
}
