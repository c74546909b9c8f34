package session

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
)

// delivery gives the CLI the prompts that it lost, in the order in which it had them. New
// prompts of the session wait for its end.
type delivery struct {
	done chan struct{}
	err  error // why it ended before all were given; set before done is closed
	// failed is how often the session could not be loaded.
	failed int
	// begun is told of the turn that a prompt begins.
	begun chan struct{}
}

// takeUpTimeout bounds waiting for the turn that a prompt begins; that takes some milliseconds.
const takeUpTimeout = 10 * time.Second

// turnBegun notes that a turn has begun. The caller holds the session's mu.
func (d *delivery) turnBegun() {
	if d == nil {
		return
	}
	select {
	case d.begun <- struct{}{}:
	default:
	}
}

// awaitTurn waits for the turn that a prompt begins: a CLI that has just loaded the session and
// is given another prompt at once may take that up first.
func (d *delivery) awaitTurn(ctx context.Context, rt Runtime, w *Waiter) {
	limit := time.NewTimer(takeUpTimeout)
	defer limit.Stop()
	select {
	case <-d.begun:
	case <-w.state.Done():
	case <-rt.Ended():
	case <-limit.C:
	case <-ctx.Done():
	}
}

// maxLoads bounds how often a session is loaded for what is owed, while that ends runtimes.
const maxLoads = 3

// deliver begins a delivery unless one is under way. The caller holds mu.
func (s *Session) deliver() {
	if s.prompts.delivery != nil {
		return
	}
	d := &delivery{done: make(chan struct{}), begun: make(chan struct{}, 1)}
	s.prompts.delivery = d
	s.host.Go(func(ctx context.Context) {
		for more := true; more; {
			d.err = s.deliverNext(ctx, d)
			s.mu.Lock()
			if more = d.err == nil && s.prompts.box.Owes(); !more {
				s.prompts.delivery = nil
				close(d.done)
			}
			s.mu.Unlock()
		}
	})
}

// awaitDelivery waits until all prompts that are owed have been given to the CLI.
func (s *Session) awaitDelivery(ctx context.Context) error {
	s.mu.Lock()
	if s.prompts.box.Owes() && s.state == Loaded {
		s.deliver()
	}
	d := s.prompts.delivery
	s.mu.Unlock()
	if d == nil {
		return nil
	}
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
		return Classify(ctx.Err(), "")
	}
}

// deliverNext gives the CLI the next prompt that is owed. It fails where the session cannot be
// loaded for now; a prompt that cannot be given for good is told as lost.
func (s *Session) deliverNext(ctx context.Context, d *delivery) error {
	if err := lock(ctx, s.sending); err != nil {
		return err
	}
	keep := false
	defer func() {
		if !keep {
			unlock(s.sending)
		}
	}()
	var given outbox.Entry
	err := s.retried(ctx, func(rt Runtime) (err error) {
		select {
		case <-d.begun: // of an earlier turn
		default:
		}
		resting := !s.TurnRunning()
		var sent Sent
		sent, given, keep, err = s.giveAgain(ctx, rt)
		if err == nil && resting && sent.Waiter != nil {
			d.awaitTurn(ctx, rt, sent.Waiter)
		}
		return err
	})
	if err == nil {
		return nil
	}
	if given.N == 0 && endedRuntime(err) && ctx.Err() == nil {
		if d.failed++; d.failed < maxLoads {
			return nil
		}
	}
	return s.deliveryFailed(ctx, given, err)
}

// endedRuntime reports whether an error says that a runtime has ended, or could not be started.
func endedRuntime(err error) bool {
	switch fault.ReasonOf(err) {
	case fault.RuntimeLost, fault.CLIExited, fault.CLIHung, fault.CLIStartFailed, fault.CLIProtocolError:
		return true
	}
	return false
}

// giveAgain gives the CLI the next prompt that is owed. keep reports that sending is held
// until its turn has ended.
func (s *Session) giveAgain(ctx context.Context, rt Runtime) (sent Sent, e outbox.Entry, keep bool, err error) {
	override := false
	for _, next := range s.prompts.box.Entries() {
		if next.Owed {
			override = next.Prompt().Override && s.hasHeaders()
			break
		}
	}
	if override {
		if err := s.takeHeaders(ctx, rt); err != nil {
			return sent, e, false, err
		}
	}
	sent, e, err = s.giveNext(ctx, rt)
	switch {
	case !override:
	case err != nil || sent.Waiter == nil:
		s.restoreHeaders(context.WithoutCancel(ctx), rt)
	default:
		keep = true
		s.restoreAfter(sent.Waiter, rt)
	}
	return sent, e, keep, err
}

// giveNext makes the call for the next prompt that is owed. Without one it does nothing.
func (s *Session) giveNext(ctx context.Context, rt Runtime) (Sent, outbox.Entry, error) {
	e, ok, err := s.prompts.box.Again(s.journal.Last(), time.Now())
	if err != nil {
		return Sent{}, e, fault.Wrap(err, fault.Internal, "reading the message from disk")
	}
	if !ok {
		return Sent{}, e, nil
	}
	p := e.Prompt()
	params, err := jsonobj.Parse(p.Params)
	if err != nil {
		return Sent{}, e, fault.Wrap(err, fault.Internal, "reading the message from disk")
	}
	w := s.anew(e.N)
	sent, err := s.give(ctx, rt, cmp.Or(p.Method, "session.send"), params, w)
	if err != nil {
		return Sent{}, e, err
	}
	s.host.Logger().Info("prompt given to the CLI again", "session_id", s.id, "message_ids", e.Names(), "delivery", e.Deliveries)
	ids := idsOf(sent.Result)
	s.prompts.box.Accepted(e.N, ids)
	s.mu.Lock()
	note := outbox.Note{IDs: e.Names(), As: ids}
	if len(ids) > 0 {
		for _, id := range ids {
			s.prompts.restored[id] = w
		}
		note.At = s.journal.Post(s.noteOf(note), journal.Position{})
		s.prompts.box.Moved(note)
	}
	s.mu.Unlock()
	w.identify(last(ids))
	s.flushPrompts()
	return sent, e, nil
}

// anew makes the waiter of a prompt ready for another delivery.
func (s *Session) anew(n uint64) *Waiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.prompts.waiters[n]
	if w == nil {
		w = &Waiter{s: s}
		w.state.Init()
		w.state.Entry = n
		s.prompts.waiters[n] = w
		s.turn.Expect(&w.state)
	}
	s.turn.Again(&w.state)
	return w
}

// deliveryFailed decides about a prompt that could not be given to the CLI again, and returns
// the error if none can for now.
func (s *Session) deliveryFailed(ctx context.Context, e outbox.Entry, err error) error {
	defer s.flushPrompts()
	reason := fault.ReasonOf(err)
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.prompts.waiters[e.N]; w != nil {
		s.turn.Doubt(&w.state)
	}
	switch {
	case ctx.Err() != nil || reason == fault.Draining || reason == fault.ProviderGone:
		if e.N != 0 && errors.Is(err, rpcconn.ErrNotSent) {
			s.prompts.box.Owe(e.N, e.Done)
		}
		return err // the next load, or the next life, goes on
	case e.N == 0: // the session could not be loaded
		for _, one := range s.prompts.box.Entries() {
			if one.Owed {
				s.losePrompt(&one, "the runtime ended before it was seen to take the message up, and the session cannot be loaded: "+err.Error())
			}
		}
		return err
	case reason == fault.RuntimeLost && errors.Is(err, rpcconn.ErrNotSent) && e.Deliveries < outbox.MaxDeliveries:
		s.prompts.box.Owe(e.N, e.Done)
		return nil
	case reason == fault.RuntimeLost && !errors.Is(err, rpcconn.ErrNotSent):
		return nil // the history tells when the session is loaded again
	}
	s.losePrompt(&e, "the runtime ended before it was seen to take the message up, and it cannot be given to another: "+err.Error())
	return nil
}

func first(ids []string) string {
	if len(ids) == 0 {
		return ""
	}
	return ids[0]
}

func last(ids []string) string {
	if len(ids) == 0 {
		return ""
	}
	return ids[len(ids)-1]
}
