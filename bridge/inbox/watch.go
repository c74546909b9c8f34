package inbox

import (
	"context"
	"errors"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/caller"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	"github.com/copilot-grpc/copilot-grpc/bridge/stream"
	"github.com/copilot-grpc/copilot-grpc/bridge/tenancy"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// queueSize bounds the changes that wait for one stream. A slower reader gets `reset` and then the callbacks that
// wait.
const queueSize = 256

// change is a change of a callback, or of who may see a session. It does not retain the callback's request.
type change struct {
	e    *sessions.Entry
	kind *callback.Kind // nil: the session's labels or shares changed
	id   string
	// resolved is the end of the callback; nil if it begins to wait.
	resolved *session.Resolved
}

// CallbackRequested publishes that a callback of a session waits. It does not block; the session may be locked.
func (svc *Service) CallbackRequested(e *sessions.Entry, p *callback.Pending) {
	svc.hub.Publish(change{e: e, kind: p.Kind, id: p.ID})
}

// CallbackResolved publishes the end of a callback of a session. It does not block; the session may be locked.
func (svc *Service) CallbackResolved(e *sessions.Entry, r session.Resolved) {
	svc.hub.Publish(change{e: e, kind: r.Kind, id: r.ID, resolved: &r})
}

// SharesChanged follows a change of the shares or labels of a session. It does not block; the session may be locked.
func (svc *Service) SharesChanged(e *sessions.Entry) {
	svc.hub.Publish(change{e: e})
	svc.Refresh(e)
}

// Refresh schedules a refresh of a session's handlers. It does not block; the session may be locked.
func (svc *Service) Refresh(e *sessions.Entry) {
	svc.refresher.mark(e)
}

// Watched returns the methods and event types that callers handle in a session with these labels. It does not
// block; the session may be locked.
func (svc *Service) Watched(e *sessions.Entry, labels map[string]string) []string {
	return svc.handlers.watched(e, labels)
}

// Handlers returns how many handlers there are, including those in their grace time.
func (svc *Service) Handlers() int { return len(svc.handlers.all()) }

// WatchPending streams the callbacks that wait and then their changes.
func (svc *Service) WatchPending(
	ctx context.Context, r *bridgev1.WatchPendingRequest, send func(*bridgev1.WatchPendingResponse) error,
) error {
	c := caller.From(ctx)
	q, err := parse(c, r)
	if err != nil {
		return err
	}
	w := svc.hub.Subscribe(func(c change) bool {
		return c.kind == nil || q.wants(c.kind) && c.e.VisibleTo(q.tenant) && tenancy.Sees(c.e.Session, q.tenant, c.kind)
	})
	defer w.Close()
	if q.handle {
		h := q.handler()
		svc.begin(c, &q, h)
		defer func() { svc.end(ctx, &q, h) }()
	}
	v := &view{request: &q, codec: svc.codec, send: send}
	if err := v.current(svc.sessions.All()); err != nil {
		return err
	}
	beat := func() error {
		return send(&bridgev1.WatchPendingResponse{Change: &bridgev1.WatchPendingResponse_Heartbeat{
			Heartbeat: &bridgev1.PendingHeartbeat{},
		}})
	}
	return stream.Loop(ctx, svc.shutdown, q.heartbeat, w.Ready(), beat, func() error {
		batch := w.Take()
		if batch.Reset {
			if err := v.reset(); err != nil {
				return err
			}
			return v.current(svc.sessions.All())
		}
		for _, c := range batch.Values {
			if err := v.follow(c); err != nil {
				return err
			}
		}
		return nil
	})
}

// begin makes a caller a handler.
func (svc *Service) begin(c caller.Caller, q *request, h *handler) {
	svc.log.Info("handler of callbacks started", "name", q.name, "caller", c.Name, "tenant", c.Tenant)
	svc.handlers.add(h)
	svc.changed(h)
}

// end ends a handler whose stream has ended: after its grace time, or at once if its caller lost its rights.
func (svc *Service) end(ctx context.Context, q *request, h *handler) {
	ended := func() {
		svc.log.Info("handler of callbacks ended", "name", q.name, "tenant", q.tenant)
		svc.changed(h)
	}
	if q.grace <= 0 || errors.Is(context.Cause(ctx), caller.ErrWithdrawn) {
		svc.handlers.remove(h)
		ended()
		return
	}
	for _, displaced := range svc.handlers.linger(h, q.grace, ended) {
		svc.changed(displaced)
	}
}

// changed refreshes the sessions of a handler that came or left.
func (svc *Service) changed(h *handler) {
	var covered []*sessions.Entry
	for _, e := range svc.sessions.All() {
		if h.covers(e, e.Session.Labels()) {
			covered = append(covered, e)
		}
	}
	svc.refresher.mark(covered...)
}
