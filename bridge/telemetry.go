package bridge

import (
	"bytes"
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
	cliv1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/cli/v1"
	"github.com/copilot-grpc/copilot-grpc/internal/caller"
)

// telemetryEvent is the notification that a copy of an event of telemetry is.
const telemetryEvent = "gitHubTelemetry.event"

// telemetryQueue bounds the events that wait for one watcher; past it the oldest go, and
// are counted.
const telemetryQueue = 1024

// telemetry are the WatchTelemetry streams.
type telemetry struct {
	mu       sync.Mutex
	watchers map[*telemetryWatcher]struct{}
}

// telemetryWatcher is one of them. The lock of all guards it.
type telemetryWatcher struct {
	tenant  string
	session string // empty for all
	signal  chan struct{}
	events  []telemetryItem
	lost    int64
}

type telemetryItem struct {
	runtime string
	params  []byte
	lost    int64 // before it
}

// take hands an event to the watchers. It runs on the connection's reader.
func (t *telemetry) take(bind *binding, params []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.watchers) == 0 {
		return
	}
	var a about
	_ = json.Unmarshal(params, &a) // what names no session is about none
	params = bytes.Clone(params)
	for w := range t.watchers {
		if w.tenant != bind.profile.Tenant || w.session != "" && w.session != a.SessionID {
			continue
		}
		if len(w.events) >= telemetryQueue {
			w.lost += 1 + w.events[0].lost
			w.events = w.events[1:]
		}
		w.events = append(w.events, telemetryItem{runtime: bind.id, params: params})
		select {
		case w.signal <- struct{}{}:
		default:
		}
	}
}

func (t *telemetry) add(tenant, sessionID string) *telemetryWatcher {
	w := &telemetryWatcher{tenant: tenant, session: sessionID, signal: make(chan struct{}, 1)}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watchers == nil {
		t.watchers = map[*telemetryWatcher]struct{}{}
	}
	t.watchers[w] = struct{}{}
	return w
}

func (t *telemetry) remove(w *telemetryWatcher) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.watchers, w)
}

// drain takes what waits for a watcher.
func (t *telemetry) drain(w *telemetryWatcher) []telemetryItem {
	t.mu.Lock()
	defer t.mu.Unlock()
	events := w.events
	if len(events) > 0 {
		events[0].lost, w.lost = w.lost, 0
	}
	w.events = nil
	return events
}

// WatchTelemetry streams the copies of the CLI's telemetry.
func (b *Bridge) WatchTelemetry(ctx context.Context, r *bridgev1.WatchTelemetryRequest, send func(*bridgev1.WatchTelemetryResponse) error) error {
	every, err := heartbeat(r.GetHeartbeatInterval(), "heartbeat_interval")
	if err != nil {
		return err
	}
	if id := r.GetSessionId(); id != "" {
		if err := checkID(id, "session_id"); err != nil {
			return err
		}
	}
	w := b.telemetry.add(caller.From(ctx).Tenant, r.GetSessionId())
	defer b.telemetry.remove(w)
	beat := time.NewTicker(every)
	defer beat.Stop()
	err = send(&bridgev1.WatchTelemetryResponse{})
	for err == nil {
		select {
		case <-w.signal:
			err = b.sendTelemetry(b.telemetry.drain(w), send)
		case <-beat.C:
			err = send(&bridgev1.WatchTelemetryResponse{})
		case <-b.draining:
			return nil
		case <-ctx.Done():
			return session.Classify(ctx.Err(), "")
		}
	}
	return err
}

func (b *Bridge) sendTelemetry(events []telemetryItem, send func(*bridgev1.WatchTelemetryResponse) error) error {
	for _, item := range events {
		out := &bridgev1.WatchTelemetryResponse{RuntimeId: item.runtime, Lost: item.lost, Event: &cliv1.CallbackGitHubTelemetryServiceEventRequest{}}
		if err := b.codec.fromJSON(item.params, out.Event); err != nil {
			return err
		}
		if err := send(out); err != nil {
			return err
		}
	}
	return nil
}
