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

// Runtime implements session.Host.
func (h host) Runtime(ctx context.Context) (session.Runtime, error) {
	rt, err := h.b.fleet.Place(ctx, h.e)
	if err != nil {
		return nil, err
	}
	return rt, nil
}

// BuiltIns implements session.Host.
func (h host) BuiltIns(ctx context.Context) *config.BuiltIns { return h.b.fleet.BuiltIns(ctx, h.e) }

// Go implements session.Host.
func (h host) Go(f func(ctx context.Context)) bool { return h.b.Go(f) }

// Spawn implements session.Host.
func (h host) Spawn(f func()) { h.b.shutdown.Spawn(f) }

// Stopped implements session.Host.
func (h host) Stopped() <-chan struct{} { return h.b.shutdown.Stopped().Done() }

// Changed implements session.Host. A disconnected or deleted session has no place in a runtime.
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

// LabelsChanged implements session.Host.
func (h host) LabelsChanged() {
	h.b.SessionWatch.Changed(h.e, bridgev1.SessionChange_SESSION_CHANGE_UPDATED)
	h.b.Callbacks.SharesChanged(h.e)
}

// Watched implements session.Host.
func (h host) Watched(labels map[string]string) []string {
	return h.b.Callbacks.Watched(h.e, labels)
}

// CallbackRequested implements session.Host.
func (h host) CallbackRequested(p *callback.Pending) { h.b.Callbacks.CallbackRequested(h.e, p) }

// CallbackResolved implements session.Host.
func (h host) CallbackResolved(r session.Resolved) { h.b.Callbacks.CallbackResolved(h.e, r) }

// Refresh implements session.Host.
func (h host) Refresh() { h.b.Callbacks.Refresh(h.e) }

// MarkDirty implements session.Host. It does not wait.
func (h host) MarkDirty() { h.b.store.MarkDirty(h.e) }

// Epoch implements session.Host.
func (h host) Epoch() uint64 { return h.b.store.NextEpoch() }

// Logger implements session.Host.
func (h host) Logger() *slog.Logger { return h.b.log }
