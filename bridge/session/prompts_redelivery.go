package session

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turn"
	bridgev1 "github.com/copilot-grpc/copilot-grpc/gen/go/copilot/bridge/v1"
)

// redelivery gives the CLI the prompts that it lost, in the order in which it had them. New
// prompts of the session wait for its end.
type redelivery struct {
	done chan struct{}
	err  error // the reason for an incomplete delivery; set before done is closed
	// failed is how often the session could not be loaded.
	failed int
	// begun is sent to when a turn begins.
	begun chan struct{}
}

// takeUpTimeout bounds waiting for the turn that a prompt begins; that takes some milliseconds.
const takeUpTimeout = 10 * time.Second

// maxLoads bounds how often a session is loaded for what is owed, while that ends runtimes.
const maxLoads = 3

// turnBegun notes that a turn has begun.
func (q *Prompts) turnBegun() {
	if q.redelivery == nil {
		return
	}
	select {
	case q.redelivery.begun <- struct{}{}:
	default:
	}
}

// awaitTurn waits for the turn of a prompt to begin. A CLI that has just loaded the session and receives
// another prompt at once may process the later prompt first.
func (d *redelivery) awaitTurn(ctx context.Context, rt Runtime, w *turn.Waiter) {
	limit := time.NewTimer(takeUpTimeout)
	defer limit.Stop()
	select {
	case <-d.begun:
	case <-w.Done():
	case <-rt.Ended():
	case <-limit.C:
	case <-ctx.Done():
	}
}

// redeliver begins a redelivery unless one is under way.
func (q *Prompts) redeliver() {
	if q.redelivery != nil {
		return
	}
	d := &redelivery{done: make(chan struct{}), begun: make(chan struct{}, 1)}
	q.redelivery = d
	q.s.host.Go(func(ctx context.Context) {
		for more := true; more; {
			q.storeContinuation()
			d.err = q.redeliverNext(ctx, d)
			q.s.update(func() {
				if more = d.err == nil && q.owesLocked(); !more {
					q.redelivery = nil
					close(d.done)
				}
			})
		}
	})
}

// awaitRedelivery waits until all prompts that are owed have been given to the CLI.
func (q *Prompts) awaitRedelivery(ctx context.Context) error {
	var d *redelivery
	q.s.update(func() {
		if q.owesLocked() && q.s.loader.state == Loaded {
			q.redeliver()
		}
		d = q.redelivery
	})
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

// redeliverNext sends the next owed prompt to the CLI. It fails if the session cannot be loaded now. It reports a
// prompt that can never be sent as lost.
func (q *Prompts) redeliverNext(ctx context.Context, d *redelivery) error {
	if err := q.sending.acquire(ctx); err != nil {
		return err
	}
	keep := false
	defer func() {
		if !keep {
			q.sending.release()
		}
	}()
	var given outbox.Entry
	err := q.s.loader.in(ctx, func(rt Runtime) (err error) {
		select {
		case <-d.begun: // of an earlier turn
		default:
		}
		idle, continuing := false, false
		q.s.update(func() { idle, continuing = !q.s.turns.machine.Busy(), q.continuing })
		if continuing { // the load has found a turn that is to be continued first
			return nil
		}
		var w *turn.Waiter
		if w, given, keep, err = q.redeliverPrompt(ctx, rt); err != nil {
			q.s.update(func() { q.undelivered(&given) })
			if given.N != 0 && errors.Is(err, rpcconn.ErrNotSent) { // the session may have been loaded again while that was stored
				q.outbox.Owe(given.N, given.Done)
				q.flush() // what follows may wait for another load
			}
		}
		if err == nil && idle && w != nil {
			d.awaitTurn(ctx, rt, w)
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
	return q.deliveryFailed(ctx, given, err)
}

// endedRuntime reports whether an error says that a runtime has ended, or could not be started.
func endedRuntime(err error) bool {
	switch fault.ReasonOf(err) {
	case fault.RuntimeLost, fault.CLIExited, fault.CLIHung, fault.CLIStartFailed, fault.CLIProtocolError:
		return true
	}
	return false
}

// redeliverPrompt gives the CLI the next prompt that is owed, and returns its waiter; nil if none is
// owed. keep reports that the queue stays acquired until its turn has ended.
func (q *Prompts) redeliverPrompt(ctx context.Context, rt Runtime) (w *turn.Waiter, e outbox.Entry, keep bool, err error) {
	override := false
	for _, next := range q.outbox.Entries() {
		if next.Owed {
			override = next.Prompt().Override && q.s.settings.hasHeaders()
			break
		}
	}
	if override {
		if err := q.s.sender.takeHeaders(ctx, rt); err != nil {
			return nil, e, false, err
		}
	}
	w, e, err = q.callNext(ctx, rt)
	switch {
	case !override:
	case err != nil || w == nil:
		q.s.sender.restoreHeaders(context.WithoutCancel(ctx), rt)
	default:
		keep = true
		q.s.sender.restoreAfter(w, rt)
	}
	return w, e, keep, err
}

// callNext makes the call for the next prompt that is owed. Without one it does nothing.
func (q *Prompts) callNext(ctx context.Context, rt Runtime) (*turn.Waiter, outbox.Entry, error) {
	e, ok, err := q.beginRedelivery(ctx)
	if err != nil || !ok {
		return nil, e, err
	}
	p := e.Prompt()
	params, err := jsonobj.Parse(p.Params)
	if err != nil {
		return nil, e, fault.Wrap(err, fault.Internal, "reading the message from disk")
	}
	var w *turn.Waiter
	q.s.update(func() {
		w = q.reset(e)
		w.Prompt = params.Get("prompt")
	})
	sent, err := q.s.sender.callAgain(ctx, rt, cmp.Or(p.Method, "session.send"), params, w)
	if err != nil {
		return nil, e, err
	}
	q.s.host.Logger().Info("prompt of an ended process sent to the CLI",
		"session_id", q.s.id, "message_ids", e.Names(), "delivery", e.Deliveries)
	ids := messageIDs(sent.Result)
	noted := make(chan error, 1)
	q.s.host.Spawn(func() { q.outbox.Accepted(e.N, ids, sent.end, func(_, _ bool, err error) { noted <- err }) })
	if err := <-noted; err != nil {
		return nil, e, err
	}
	q.s.update(func() {
		for _, id := range ids {
			q.restored[id] = w
		}
		q.moved(&e, ids)
		w.Span.Message(lastOf(ids))
		q.s.turns.carryOut(q.s.turns.machine.Identify(w, ids...))
	})
	q.flush()
	return w, e, nil
}

// moved notes that a prompt of an earlier delivery has other ids. The caller holds the lock.
func (q *Prompts) moved(e *outbox.Entry, ids []string) {
	if len(ids) == 0 {
		return
	}
	note := outbox.Note{IDs: e.Names(), As: ids, Continues: e.Prompt().Continues}
	note.At = q.s.journal.Post(q.note(note), journal.Position{})
	q.outbox.Moved(note)
}

// beginRedelivery begins the delivery of the next prompt that is owed. In a cluster it waits until that is stored: otherwise the
// next owner of the session, which would not know of the delivery, would send the prompt once more.
func (q *Prompts) beginRedelivery(ctx context.Context) (outbox.Entry, bool, error) {
	var e outbox.Entry
	var ok bool
	var err error
	unstored := storing(ctx, func() error {
		if e, ok, err = q.outbox.BeginRedelivery(q.s.journal.Appended(), time.Now(), q.s.journal.Remote()); errors.Is(err, outbox.ErrUnstored) {
			return err
		}
		return nil
	})
	if unstored != nil {
		return outbox.Entry{}, false, Classify(ctx.Err(), "")
	}
	return e, ok, err
}

// reset makes the waiter of a prompt ready for another delivery.
func (q *Prompts) reset(e outbox.Entry) *turn.Waiter {
	w := q.waiters[e.N]
	if w == nil {
		w = turn.NewWaiter(e.N)
		q.waiters[e.N] = w
		q.s.turns.machine.Expect(w)
	}
	w.Immediate = e.Prompt().Immediate
	q.s.turns.machine.Again(w)
	return w
}

// undelivered notes that a call for a prompt has failed, which may be made again. An abort ends the prompt at once until then: if
// the runtime has ended, no event tells of that. The caller holds the lock.
func (q *Prompts) undelivered(e *outbox.Entry) {
	switch w := q.waiters[e.N]; {
	case w == nil:
	case w.Removed() && !w.Begun():
		q.remove(e, bridgev1.TurnStatus_TURN_STATUS_ABORTED)
	default:
		q.s.turns.machine.MarkUnconfirmed(w)
	}
}

// deliveryFailed handles a prompt that could not be sent again. It returns the error if no prompt can be sent
// now.
func (q *Prompts) deliveryFailed(ctx context.Context, e outbox.Entry, err error) (out error) {
	defer q.flush()
	var lost []outbox.Entry
	why := ""
	q.s.update(func() { lost, why, out = q.failed(ctx, e, err) })
	if len(lost) == 0 {
		return out
	}
	if err := q.storeLost(ctx, lost, why); err != nil {
		return err
	}
	q.s.update(func() {
		for i := range lost {
			q.lose(&lost[i], why)
		}
	})
	return out
}

// storeLost stores, before senders and readers know it, that prompts are lost, if another process may continue the session: that one
// would send them.
func (q *Prompts) storeLost(ctx context.Context, lost []outbox.Entry, why string) error {
	if !q.s.journal.Remote() {
		return nil
	}
	for i := range lost {
		q.outbox.Finish(lost[i].N)
		for _, id := range lost[i].Names() {
			q.outbox.Forget(id, fault.Name(fault.SendUnconfirmed), why)
		}
	}
	return q.storeUntil(ctx)
}

// failed returns the prompts that are lost because a delivery has failed, and why. The caller holds the lock.
func (q *Prompts) failed(ctx context.Context, e outbox.Entry, err error) (lost []outbox.Entry, why string, out error) {
	reason, unsent := fault.ReasonOf(err), errors.Is(err, rpcconn.ErrNotSent)
	switch {
	case ctx.Err() != nil || reason == fault.Draining || reason == fault.HandlerMissing ||
		reason == fault.SessionUnavailable:
		if e.N != 0 && unsent {
			q.outbox.Owe(e.N, e.Done)
		}
		return nil, "", err // the next load, the next process or the next owner goes on
	case e.N == 0: // the session could not be loaded
		lost = slices.DeleteFunc(q.outbox.Entries(), func(o outbox.Entry) bool { return !o.Owed })
		return lost, "the runtime ended before it confirmed the message, and the session cannot be loaded: " + err.Error(), err
	case !slices.ContainsFunc(q.outbox.Entries(), func(o outbox.Entry) bool { return o.N == e.N }):
		return nil, "", nil // an abort has removed it
	case reason == fault.RuntimeLost && unsent && e.Deliveries < outbox.MaxDeliveries:
		q.outbox.Owe(e.N, e.Done)
		return nil, "", nil
	case reason == fault.RuntimeLost && !unsent:
		return nil, "", nil // the history tells when the session is loaded again
	}
	return []outbox.Entry{e}, "the runtime ended before it confirmed the message, and the message cannot be sent again: " + err.Error(), nil
}
