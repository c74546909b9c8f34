package stream

import (
	"bytes"
	"context"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/broadcast"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/shutdown"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	"github.com/copilot-grpc/copilot-grpc/bridge/wire"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/leaving"
)

// watchQueue bounds the changes that wait for one watcher. A slower watcher gets RESET and then
// the current state.
const watchQueue = 256

// VisibleSessions finds sessions for watchers.
type VisibleSessions interface {
	// Visible returns the sessions that the caller may use, in no order.
	Visible(ctx context.Context) []*sessions.Entry
}

// SessionWatch serves EventService.WatchSessions: it reports which sessions are created, change and end. A watch runs on
// its caller's goroutine. The only lock is the hub's; the lock of an entry's shares is taken while it is held.
//
// It is safe for concurrent use.
type SessionWatch struct {
	sessions VisibleSessions
	shutdown *shutdown.Coordinator
	codec    *wire.Codec
	hub      *broadcast.Hub[change]
}

// NewSessionWatch returns a SessionWatch. Its streams end when s drains.
func NewSessionWatch(sessions VisibleSessions, s *shutdown.Coordinator, codec *wire.Codec) *SessionWatch {
	return &SessionWatch{sessions: sessions, shutdown: s, codec: codec, hub: broadcast.New[change](watchQueue, broadcast.Reset)}
}

// change is a change to a session of the bridge or, if e is nil, of the history.
type change struct {
	e    *sessions.Entry
	what bridgev1.SessionChange
	id   string
	// notification has the parameters of the CLI's notification, for NOTIFICATION only.
	notification []byte
	// shown reports whether the watchers of a tenant may know of the change.
	shown func(tenant string) bool
}

// Changed publishes a change to the watchers of all tenants that may know of the session. It never
// blocks.
func (svc *SessionWatch) Changed(e *sessions.Entry, what bridgev1.SessionChange) {
	if !svc.hub.Active() {
		return
	}
	svc.hub.Publish(change{e: e, what: what, id: e.Session.ID(), shown: e.VisibleTo})
}

// ChangedFor publishes a change to the watchers of one tenant: the session was shared with it, or
// no longer is.
func (svc *SessionWatch) ChangedFor(e *sessions.Entry, with string, what bridgev1.SessionChange) {
	svc.hub.Publish(change{
		e: e, what: what, id: e.Session.ID(), shown: func(tenant string) bool { return tenant == with },
	})
}

// Deleted publishes that a session of the history was deleted; e is nil unless the bridge has the
// session.
func (svc *SessionWatch) Deleted(e *sessions.Entry, tenant, id string) {
	svc.hub.Publish(change{
		e: e, what: bridgev1.SessionChange_SESSION_CHANGE_DELETED, id: id, shown: shownTo(e, tenant),
	})
}

// Notified publishes a session.lifecycle notification of a tenant's CLI process, with the session's id; e is nil unless
// the bridge has the session. It never blocks and does not keep params.
func (svc *SessionWatch) Notified(e *sessions.Entry, tenant, id string, params []byte) {
	if !svc.hub.Active() {
		return
	}
	svc.hub.Publish(change{
		e: e, what: bridgev1.SessionChange_SESSION_CHANGE_NOTIFICATION, id: id, notification: bytes.Clone(params),
		shown: shownTo(e, tenant),
	})
}

// shownTo returns which tenants may know of a change in a tenant's history: e may be nil.
func shownTo(e *sessions.Entry, tenant string) func(to string) bool {
	return func(to string) bool { return to == tenant || e != nil && e.VisibleTo(to) }
}

// subscribe subscribes to the changes that a tenant may know of, and to the CLI's notifications if asked.
func (svc *SessionWatch) subscribe(tenant string, notifications bool) *broadcast.Subscription[change] {
	return svc.hub.Subscribe(func(c change) bool {
		return (notifications || c.notification == nil) && c.shown(tenant)
	})
}

// WatchSessions streams the current sessions and then their changes. It calls open before it sends: changes after
// that are among those that it sends, and sessions created after that are not among the current ones.
func (svc *SessionWatch) WatchSessions(
	ctx context.Context, r *bridgev1.WatchSessionsRequest, open func() error,
	send func(*bridgev1.WatchSessionsResponse) error,
) error {
	every, err := Heartbeat(r.GetHeartbeatInterval(), "heartbeat_interval")
	if err != nil {
		return err
	}
	if err := sessions.CheckFilter(r.GetFilter(), "filter"); err != nil {
		return err
	}
	tenant := caller.From(ctx).Tenant
	w := svc.subscribe(tenant, r.GetNotifications())
	defer w.Close()
	matching := newMatcher(r.GetFilter())
	current := svc.sessions.Visible(ctx)
	if err := open(); err != nil {
		return err
	}
	if err := sendCurrent(current, tenant, matching, send); err != nil {
		return err
	}
	beat := func() error {
		return send(&bridgev1.WatchSessionsResponse{Change: bridgev1.SessionChange_SESSION_CHANGE_HEARTBEAT})
	}
	return Loop(ctx, svc.shutdown, every, w.Ready(), beat, func() error {
		batch := w.Take()
		if batch.Reset {
			reset := &bridgev1.WatchSessionsResponse{Change: bridgev1.SessionChange_SESSION_CHANGE_RESET}
			if err := send(reset); err != nil {
				return err
			}
			return sendCurrent(svc.sessions.Visible(ctx), tenant, matching, send)
		}
		for _, c := range batch.Values {
			if !c.visibleTo(tenant) {
				continue
			}
			out, err := svc.response(c, tenant)
			if err != nil {
				return err
			}
			if out = matching.pass(c.e, out); out != nil {
				if err := send(out); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// response describes a change to callers of a tenant.
func (svc *SessionWatch) response(c change, tenant string) (*bridgev1.WatchSessionsResponse, error) {
	out := c.response(tenant)
	if c.notification == nil {
		return out, nil
	}
	out.Notification = &cliv1.CallbackSessionServiceLifecycleRequest{}
	if err := svc.codec.FromJSON(c.notification, out.GetNotification()); err != nil {
		return nil, err
	}
	out.Notification.SessionId = out.GetSession().GetSessionId() // another tenant has another name for the session
	return out, nil
}

// Loop runs a stream of a subscription: it calls take when ready receives and beat in intervals.
// It returns nil when the server drains or the caller's connection is to close: the caller then
// watches again elsewhere.
func Loop(
	ctx context.Context, s *shutdown.Coordinator, interval time.Duration, ready <-chan struct{},
	beat, take func() error,
) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	away := leaving.From(ctx).Away
	for {
		var err error
		select {
		case <-ready:
			err = take()
		case <-ticker.C:
			err = beat()
		case <-s.Draining():
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

// sendCurrent sends the sessions that match, as a tenant sees them.
func sendCurrent(
	sessions []*sessions.Entry, tenant string, matching *matcher, send func(*bridgev1.WatchSessionsResponse) error,
) error {
	matching.reset()
	for _, e := range sessions {
		c := change{e: e, what: bridgev1.SessionChange_SESSION_CHANGE_CURRENT}
		if out := matching.pass(e, c.response(tenant)); out != nil {
			if err := send(out); err != nil {
				return err
			}
		}
	}
	return nil
}

// visibleTo reports whether watchers of a tenant may know of a queued change: the session may
// have been unshared since.
func (c change) visibleTo(tenant string) bool {
	return nameOnly(c.what) || c.e.VisibleTo(tenant)
}

// nameOnly reports whether a change describes only the session's name.
func nameOnly(what bridgev1.SessionChange) bool {
	switch what {
	case bridgev1.SessionChange_SESSION_CHANGE_DELETED, bridgev1.SessionChange_SESSION_CHANGE_UNSHARED,
		bridgev1.SessionChange_SESSION_CHANGE_NOTIFICATION:
		return true
	}
	return false
}

// response describes a change to callers of a tenant.
func (c change) response(tenant string) *bridgev1.WatchSessionsResponse {
	out := &bridgev1.WatchSessionsResponse{Change: c.what}
	switch {
	case !nameOnly(c.what):
		out.Session = c.e.Snapshot(tenant)
	case c.e != nil:
		out.Session = &bridgev1.Session{SessionId: tenancy.NameFor(c.e.Session, tenant)}
	default:
		out.Session = &bridgev1.Session{SessionId: c.id}
	}
	return out
}
