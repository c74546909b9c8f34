package bridge

import (
	"context"
	"log/slog"

	"github.com/copilot-grpc/copilot-grpc/bridge/callback"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/sessions"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// host implements session.Host for one session. Its runtimes have the session's profile.
type host struct {
	b *Bridge
	e *sessions.Entry
}

func (h host) Runtime(ctx context.Context) (session.Runtime, error) {
	rt, err := h.b.fleet.Place(ctx, h.e)
	if err != nil {
		return nil, err
	}
	return rt, nil
}

func (h host) BuiltIns(ctx context.Context) *config.BuiltIns { return h.b.fleet.BuiltIns(ctx, h.e) }

func (h host) Go(f func(ctx context.Context)) bool { return h.b.Go(f) }

func (h host) Spawn(f func()) { h.b.shutdown.Spawn(f) }

func (h host) Stopped() <-chan struct{} { return h.b.shutdown.Stopped().Done() }

// Changed publishes a change. A disconnected or deleted session has no place in a runtime.
func (h host) Changed(what bridgev1.SessionChange) {
	switch what {
	case bridgev1.SessionChange_SESSION_CHANGE_DISCONNECTED:
		h.b.fleet.Forget(h.e.Key())
		h.b.store.TrackDisconnected(h.e)
	case bridgev1.SessionChange_SESSION_CHANGE_DELETED:
		h.b.fleet.Forget(h.e.Key())
	}
	h.b.SessionWatch.Changed(h.e, what)
}

func (h host) LabelsChanged() {
	h.b.SessionWatch.Changed(h.e, bridgev1.SessionChange_SESSION_CHANGE_UPDATED)
	h.b.Callbacks.SharesChanged(h.e)
}

func (h host) Watched(labels map[string]string) []string {
	return h.b.Callbacks.Watched(h.e, labels)
}

func (h host) CallbackRequested(p *callback.Pending) { h.b.Callbacks.CallbackRequested(h.e, p) }

func (h host) CallbackResolved(r session.Resolved) { h.b.Callbacks.CallbackResolved(h.e, r) }

func (h host) Refresh() { h.b.Callbacks.Refresh(h.e) }

func (h host) MarkDirty() { h.b.store.MarkDirty(h.e) }

func (h host) Store() error { return h.b.store.Save(h.e) }

func (h host) Epoch() uint64 { return h.b.store.NextEpoch() }

func (h host) Logger() *slog.Logger { return h.b.log }
