package sending

import (
	"context"
	"encoding/json"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/async"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/prompts"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
)

// restoreTimeout bounds putting a provider's headers back after a turn.
const restoreTimeout = time.Minute

// HeadersReplaced reports whether a turn runs whose headers replace the provider's. The caller
// holds the lock.
func (s *Sender) HeadersReplaced() bool { return s.replacedIn != nil }

// RuntimeEnded notes that no runtime has the session. The caller holds the lock.
func (s *Sender) RuntimeEnded() { s.replacedIn = nil }

// takeHeaders takes the provider's headers away once the running turn has ended: the headers of a message take the place
// of the provider's, and the CLI only knows how to merge. The next message waits until the turn has ended and the headers
// are back.
func (s *Sender) takeHeaders(ctx context.Context, rt Runtime) error {
	if err := s.cfg.Turns.AwaitRest(ctx); err != nil {
		return err
	}
	err := s.cfg.Reconfigure(ctx, rt, func() { s.setReplaced(rt) })
	if err != nil {
		s.setReplaced(nil)
	}
	return err
}

// restoreAfter gives the provider's headers back, and sending free, when a turn has ended or
// the runtime has.
func (s *Sender) restoreAfter(w *turn.Waiter, rt Runtime) {
	s.cfg.Go(func(ctx context.Context) {
		defer s.cfg.Prompts.Release()
		select {
		case <-w.Done():
		case <-rt.Ended(): // the message may be sent to another runtime, which needs sending
		case <-ctx.Done():
		}
		s.restoreHeaders(ctx, rt)
	})
}

// restoreHeaders gives the provider's headers back.
func (s *Sender) restoreHeaders(ctx context.Context, rt Runtime) {
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	s.cfg.Lock.Lock()
	current := s.replacedIn == rt
	s.cfg.Lock.Unlock()
	if !current {
		return // the next runtime gets the whole configuration anyway
	}
	if err := s.cfg.Reconfigure(ctx, rt, func() { s.setReplaced(nil) }); err != nil {
		s.cfg.Logger().Error("restoring the provider's headers failed", "session_id", s.cfg.Session, "error", err)
	}
}

func (s *Sender) setReplaced(rt Runtime) {
	s.cfg.Lock.Lock()
	defer s.cfg.Lock.Unlock()
	s.replacedIn = rt
}

// In calls f with the runtime that has the session, as prompts.Config wants it.
func (s *Sender) In(ctx context.Context, f func(prompts.Runtime) error) error {
	return s.cfg.In(ctx, func(rt Runtime) error { return f(carrier{s, rt}) })
}

// carrier gives prompts to one runtime. It is the queue's prompts.Runtime.
type carrier struct {
	s  *Sender
	rt Runtime
}

func (c carrier) Ended() <-chan struct{}                { return c.rt.Ended() }
func (c carrier) TakeHeaders(ctx context.Context) error { return c.s.takeHeaders(ctx, c.rt) }
func (c carrier) RestoreHeaders(ctx context.Context)    { c.s.restoreHeaders(ctx, c.rt) }
func (c carrier) RestoreAfter(w *turn.Waiter)           { c.s.restoreAfter(w, c.rt) }

func (c carrier) Give(
	ctx context.Context, method string, params jsonobj.Object, w *turn.Waiter,
) (json.RawMessage, error) {
	return async.Wait(ctx, func(done func(json.RawMessage, error)) {
		sent := &Sent{Waiter: c.s.cfg.Turns.Waiter(w)}
		c.s.give(ctx, c.rt, method, params, sent, func(err error) { done(sent.Result, err) })
	})
}
