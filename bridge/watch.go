package bridge

import (
	"context"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/broadcast"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/registry"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/stream"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/leaving"
)

// watchQueue bounds the changes that wait for one watcher. A slower watcher gets RESET and then
// the current state.
const watchQueue = 256

// change is a change to a session of the bridge or, if e is nil, of the history.
type change struct {
	e    *registry.Entry
	what bridgev1.SessionChange
	id   string
	// shown reports whether the watchers of a tenant may know of the change.
	shown func(tenant string) bool
}

// changed publishes a change to the watchers. It never blocks.
func (b *Bridge) changed(e *registry.Entry, what bridgev1.SessionChange) {
	if what == bridgev1.SessionChange_SESSION_CHANGE_DISCONNECTED {
		b.retire(e)
	}
	b.watchers.Publish(change{e, what, e.Session.ID(), func(tenant string) bool { return shows(e, tenant) }})
}

// updated is changed for a session; it does nothing if the session was removed.
func (b *Bridge) updated(s *session.Session, what bridgev1.SessionChange) {
	if e := b.entryOf(s); e != nil {
		b.changed(e, what)
	}
}

// deleted tells the watchers that a session of the history was deleted; e is nil unless the
// bridge knew it.
func (b *Bridge) deleted(e *registry.Entry, tenant, id string) {
	b.watchers.Publish(change{e, bridgev1.SessionChange_SESSION_CHANGE_DELETED, id, func(to string) bool {
		return to == tenant || e != nil && shows(e, to)
	}})
}

// watchChanges subscribes to the changes that a tenant may know of.
func (b *Bridge) watchChanges(tenant string) *broadcast.Subscription[change] {
	return b.watchers.Subscribe(func(c change) bool { return c.shown(tenant) })
}

// WatchSessions streams the coming and going of sessions.
func (b *Bridge) WatchSessions(ctx context.Context, r *bridgev1.WatchSessionsRequest, send func(*bridgev1.WatchSessionsResponse) error) error {
	every, err := stream.Heartbeat(r.GetHeartbeatInterval(), "heartbeat_interval")
	if err != nil {
		return err
	}
	tenant := caller.From(ctx).Tenant
	w := b.watchChanges(tenant)
	defer w.Close()
	if r.GetNotifications() {
		send = b.notifying(send)
	}
	if err := b.sendCurrent(ctx, send); err != nil {
		return err
	}
	beat := func() error {
		return send(&bridgev1.WatchSessionsResponse{Change: bridgev1.SessionChange_SESSION_CHANGE_HEARTBEAT})
	}
	return b.watch(ctx, every, w.Ready(), beat, func() error {
		batch := w.Take()
		if batch.Reset {
			if err := send(&bridgev1.WatchSessionsResponse{Change: bridgev1.SessionChange_SESSION_CHANGE_RESET}); err != nil {
				return err
			}
			return b.sendCurrent(ctx, send)
		}
		for _, c := range batch.Values {
			if !concerns(c, tenant) {
				continue
			}
			if err := send(c.proto(tenant)); err != nil {
				return err
			}
		}
		return nil
	})
}

// watch runs a stream of a subscription: take when ready receives, beat in pauses. It returns
// nil when the caller is to watch again on another connection, or at another server.
func (b *Bridge) watch(ctx context.Context, every time.Duration, ready <-chan struct{}, beat, take func() error) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	away := leaving.From(ctx).Away
	for {
		var err error
		select {
		case <-ready:
			err = take()
		case <-ticker.C:
			err = beat()
		case <-b.shutdown.Draining():
			return nil
		case <-away:
			return nil
		case <-ctx.Done():
			return session.Classify(ctx.Err(), "")
		}
		if err != nil {
			return err
		}
	}
}

func (b *Bridge) sendCurrent(ctx context.Context, send func(*bridgev1.WatchSessionsResponse) error) error {
	for _, e := range b.visible(ctx) {
		c := change{e: e, what: bridgev1.SessionChange_SESSION_CHANGE_CURRENT}
		if err := send(c.proto(caller.From(ctx).Tenant)); err != nil {
			return err
		}
	}
	return nil
}

// concerns reports whether a watcher of a tenant may still be told of a change that was queued
// for it: the session may have been unshared since.
func concerns(c change, tenant string) bool {
	return bare(c.what) || shows(c.e, tenant)
}

// bare reports whether a change tells nothing of its session but the name.
func bare(what bridgev1.SessionChange) bool {
	return what == bridgev1.SessionChange_SESSION_CHANGE_DELETED || what == bridgev1.SessionChange_SESSION_CHANGE_UNSHARED
}

// proto is the change as callers of a tenant see it.
func (c change) proto(tenant string) *bridgev1.WatchSessionsResponse {
	out := &bridgev1.WatchSessionsResponse{Change: c.what}
	switch {
	case !bare(c.what):
		out.Session = snapshotAs(c.e.Session, c.e, tenant)
	case c.e != nil:
		out.Session = &bridgev1.Session{SessionId: tenancy.NameFor(c.e.Session, tenant)}
	default:
		out.Session = &bridgev1.Session{SessionId: c.id}
	}
	return out
}
