package bridge

import (
	"context"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/caller"
	"github.com/copilot-grpc/copilot-grpc/internal/leaving"
)

// watchQueue bounds the changes waiting for one watcher. A watcher that is slower is
// told RESET and then how things are.
const watchQueue = 256

// change is a change to a session: to one that the bridge has, or to one of the history,
// of which there is the id.
type change struct {
	s    *session.Session
	what bridgev1.SessionChange
	id   string
}

// watchers are the WatchSessions streams.
type watchers struct {
	mu  sync.Mutex
	all map[*watcher]struct{}
}

type watcher struct {
	tenant   string
	queue    chan change
	overflow chan struct{} // capacity 1
}

// Changed tells the watchers of a change. It never blocks.
func (b *Bridge) Changed(s *session.Session, what bridgev1.SessionChange) {
	if what == bridgev1.SessionChange_SESSION_CHANGE_DISCONNECTED {
		b.retire(s)
	}
	b.watchers.tell(change{s, what, s.ID()}, func(tenant string) bool { return b.shows(s, tenant) })
}

// deleted tells the watchers that a session of the history was deleted; s is nil unless the
// bridge knew it.
func (b *Bridge) deleted(s *session.Session, tenant, id string) {
	b.watchers.tell(change{s, bridgev1.SessionChange_SESSION_CHANGE_DELETED, id}, func(to string) bool {
		return to == tenant || s != nil && b.shows(s, to)
	})
}

// tell queues a change for the watchers of the tenants that may know of it.
func (ws *watchers) tell(c change, shown func(tenant string) bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.all {
		if !shown(w.tenant) {
			continue
		}
		select {
		case w.queue <- c:
		default:
			select {
			case w.overflow <- struct{}{}:
			default:
			}
		}
	}
}

func (ws *watchers) add(tenant string) *watcher {
	w := &watcher{tenant: tenant, queue: make(chan change, watchQueue), overflow: make(chan struct{}, 1)}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.all == nil {
		ws.all = map[*watcher]struct{}{}
	}
	ws.all[w] = struct{}{}
	return w
}

func (ws *watchers) remove(w *watcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.all, w)
}

// WatchSessions streams the coming and going of sessions.
func (b *Bridge) WatchSessions(ctx context.Context, r *bridgev1.WatchSessionsRequest, send func(*bridgev1.WatchSessionsResponse) error) error {
	every, err := heartbeat(r.GetHeartbeatInterval(), "heartbeat_interval")
	if err != nil {
		return err
	}
	w := b.watchers.add(caller.From(ctx).Tenant)
	defer b.watchers.remove(w)
	if r.GetNotifications() {
		send = b.notifying(send)
	}
	if err := b.sendCurrent(ctx, send); err != nil {
		return err
	}
	beat := time.NewTicker(every)
	defer beat.Stop()
	gone := leaving.From(ctx).Away
	for {
		var err error
		select {
		case c := <-w.queue:
			if b.concerns(c, w.tenant) {
				err = send(changed(c, w.tenant))
			}
		case <-w.overflow:
			for len(w.queue) > 0 {
				<-w.queue
			}
			if err = send(&bridgev1.WatchSessionsResponse{Change: bridgev1.SessionChange_SESSION_CHANGE_RESET}); err == nil {
				err = b.sendCurrent(ctx, send)
			}
		case <-beat.C:
			err = send(&bridgev1.WatchSessionsResponse{Change: bridgev1.SessionChange_SESSION_CHANGE_HEARTBEAT})
		case <-b.draining:
			return nil
		case <-gone:
			return nil // as when the server drains: the caller watches again on another connection
		case <-ctx.Done():
			return session.Classify(ctx.Err(), "")
		}
		if err != nil {
			return err
		}
	}
}

func (b *Bridge) sendCurrent(ctx context.Context, send func(*bridgev1.WatchSessionsResponse) error) error {
	for _, s := range b.visible(ctx) {
		c := change{s, bridgev1.SessionChange_SESSION_CHANGE_CURRENT, s.ID()}
		if err := send(changed(c, caller.From(ctx).Tenant)); err != nil {
			return err
		}
	}
	return nil
}

// concerns reports whether a watcher of a tenant may still be told of a change that was queued
// for it: the session may have been unshared since.
func (b *Bridge) concerns(c change, tenant string) bool {
	return bare(c.what) || b.shows(c.s, tenant)
}

// bare reports whether a change tells nothing of its session but the name.
func bare(what bridgev1.SessionChange) bool {
	return what == bridgev1.SessionChange_SESSION_CHANGE_DELETED || what == bridgev1.SessionChange_SESSION_CHANGE_UNSHARED
}

// changed is a change as callers of a tenant are told of it.
func changed(c change, tenant string) *bridgev1.WatchSessionsResponse {
	out := &bridgev1.WatchSessionsResponse{Change: c.what}
	switch {
	case !bare(c.what):
		out.Session = snapshotAs(c.s, tenant)
	case c.s != nil:
		out.Session = &bridgev1.Session{SessionId: nameFor(c.s, tenant)}
	default:
		out.Session = &bridgev1.Session{SessionId: c.id}
	}
	return out
}
