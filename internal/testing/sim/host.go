package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/config"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/event"
	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
)

// runtime is the bridge's side of a CLI process.
type runtime struct {
	w    *world
	life *life
	conn *rpcconn.Conn
	told chan struct{}
	// routed and err are guarded by the world's lock.
	routed bool
	err    error
}

// host implements session.Host.
type host struct {
	w *world
	*life
}

func (h host) Runtime(ctx context.Context) (session.Runtime, error) {
	w := h.w
	w.mu.Lock()
	for w.rt != nil && w.cli == nil && w.lives(h.life) { // the next process begins when the end of this one is known
		told := w.rt.told
		w.mu.Unlock()
		select {
		case <-told:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		w.mu.Lock()
	}
	defer w.mu.Unlock()
	if !w.lives(h.life) {
		return nil, errors.New("the bridge has ended")
	}
	if w.rt == nil {
		w.cli = newCLI(w)
		w.cli.w = w.model()
		w.rt = &runtime{w: w, life: h.life, told: make(chan struct{})}
		w.rt.conn = rpcconn.New(w.cli.pipe, rpcconn.Options{Event: w.rt.event, Request: w.rt.request, Arrive: modelLane})
	}
	return w.rt, nil
}

func (h host) Go(f func(context.Context)) bool {
	if h.ctx.Err() != nil {
		return false
	}
	h.tasks.Go(func() { f(h.ctx) })
	return true
}
func (host) Spawn(f func()) { go f() }
func (h host) Epoch() uint64 {
	h.w.mu.Lock()
	defer h.w.mu.Unlock()
	h.w.epoch++
	return 1 + h.w.epoch
}
func (h host) Stopped() <-chan struct{}                { return h.ctx.Done() }
func (host) BuiltIns(context.Context) *config.BuiltIns { return nil }
func (host) Logger() *slog.Logger                      { return slog.New(slog.DiscardHandler) }

// LabelsChanged implements session.Host.
func (h host) LabelsChanged() { h.hears(func() { h.w.settings.labelled++ }) }

// cliVersion is the version of CLI processes.
const cliVersion = "1.0.102"

// refreshTimeout is that of package inbox. A process that does not answer for as long is killed.
const refreshTimeout = time.Minute

// Refresh implements session.Host.
func (h host) Refresh() {
	h.Go(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
		defer cancel()
		_ = h.s.Participants().Refresh(ctx)
	})
}

func (rt *runtime) Call(ctx context.Context, method string, params []byte, opts ...rpcconn.CallOption) (json.RawMessage, error) {
	return rt.conn.Call(ctx, method, params, opts...)
}

func (rt *runtime) Start(
	_ context.Context, method string, params []byte, limit time.Duration, done func(json.RawMessage, error),
	opts ...rpcconn.CallOption,
) error {
	return rt.conn.Start(method, params, limit, done, opts...)
}

func (rt *runtime) Route(*session.Session) error {
	rt.w.mu.Lock()
	defer rt.w.mu.Unlock()
	rt.routed = true
	return nil
}

func (rt *runtime) Unroute(*session.Session) {
	rt.w.mu.Lock()
	defer rt.w.mu.Unlock()
	rt.routed = false
}

func (rt *runtime) Traces() bool           { return false }
func (rt *runtime) Ended() <-chan struct{} { return rt.told }
func (rt *runtime) Version() string        { return cliVersion }

// TurnCompleted implements session.Runtime.
func (rt *runtime) TurnCompleted() {
	rt.w.mu.Lock()
	defer rt.w.mu.Unlock()
	rt.w.completed++
}

func (rt *runtime) Err() error {
	rt.w.mu.Lock()
	defer rt.w.mu.Unlock()
	return rt.err
}

func (rt *runtime) event(body []byte) {
	rt.w.mu.Lock()
	routed := rt.routed
	rt.w.mu.Unlock()
	f, err := translate.ScanFrame(body)
	if err != nil {
		rt.w.fail("the bridge cannot read %s: %v", body, err)
	} else if routed {
		rec := event.Record(f.Event, bytes.Clone(f.Event.Raw), nil)
		rt.w.mu.Lock()
		rt.w.turns.receives(rt.life, rec.ID)
		rt.w.mu.Unlock()
		rt.life.s.Ingest(rec, time.Now())
	}
}
