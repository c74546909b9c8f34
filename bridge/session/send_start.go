package session

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"github.com/copilot-grpc/copilot-grpc/bridge/async"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
)

// Start sends a message to the agent. It calls done once with the end of that, on another goroutine, which done may block.
// If the message must wait for something first (a load, another message, a disk), Start leaves it to a goroutine, and the
// message ends with ctx meanwhile. Once the CLI has the message, the end of ctx does not take it back; no goroutine waits
// for the CLI's reply, which may take Bounds.Send.
func (sd *Sender) Start(ctx context.Context, m Message, done func(Sent, error)) {
	a := &attempt{sd: sd, ctx: ctx, m: m, done: done}
	if a.startAtOnce() {
		return
	}
	a.startLater()
}

// attempt is a message on its way to the CLI.
type attempt struct {
	sd   *Sender
	ctx  context.Context // the caller's
	m    Message
	done func(Sent, error)
	// again: the runtime no longer had the session when it received the message, which another one receives now.
	again bool

	// The rest is set when it is the message's turn to be sent.

	// rt has the session, which stays loaded until letGo is called.
	rt Runtime
	// overrides: the message's headers have replaced the provider's.
	overrides bool
	prompt    outbox.Prompt
	w         *Waiter
	n         uint64           // in the outbox
	before    journal.Position // the journal's end before the call
	unstored  bool
	sent      Sent
}

// startAtOnce sends the message unless something has to be waited for first; then it does nothing, and returns false.
func (a *attempt) startAtOnce() bool {
	sd := a.sd
	if a.m.Override || a.m.Immediate || !sd.s.prompts.Outbox().Fits(a.m.size()) || sd.s.journal.Remote() ||
		!sd.s.prompts.sending.tryAcquire() {
		return false
	}
	if a.rt = sd.s.loader.holdLoaded(); a.rt == nil || sd.s.prompts.owes() {
		a.end()
		return false
	}
	if err := a.begin(); err != nil {
		a.end()
		sd.s.host.Spawn(func() { a.done(Sent{}, err) })
		return true
	}
	a.call()
	return true
}

// startLater sends the message when nothing has to be waited for any longer.
func (a *attempt) startLater() {
	started := a.sd.s.host.Go(func(bridge context.Context) {
		ctx, cancel := context.WithCancel(a.ctx)
		defer cancel()
		defer context.AfterFunc(bridge, cancel)()
		if err := a.prepare(ctx); err != nil {
			if bridge.Err() != nil && a.ctx.Err() == nil {
				err = async.ErrStopping
			}
			a.done(Sent{}, err)
			return
		}
		a.call()
	})
	if !started {
		a.sd.s.host.Spawn(func() { a.done(Sent{}, async.ErrStopping) })
	}
}

// prepare waits until it is the message's turn to be sent: until the storage takes it, all messages before it were sent,
// and a runtime has the session.
func (a *attempt) prepare(ctx context.Context) error {
	sd := a.sd
	sd.s.mu.Lock()
	steering := a.m.Immediate && sd.replacedIn != nil
	sd.s.mu.Unlock()
	if steering {
		return fault.New(fault.SessionBusy, "a turn with its own provider headers is running").WithField("prompt.mode")
	}
	if err := sd.s.journal.AwaitStorage(ctx, storagePatience); err != nil {
		return unavailable(err)
	}
	for {
		if err := sd.s.prompts.sending.acquire(ctx); err != nil {
			return err
		}
		err := a.enter(ctx)
		if err == nil && !sd.s.prompts.owes() {
			// While it waited for the turn before, the session may have left the runtime, and come back with messages that are owed.
			if err = a.replaceHeaders(ctx); errors.Is(err, errLeft) || err == nil && a.overrides && sd.s.prompts.owes() {
				a.restoreHeaders()
				a.end()
				continue
			}
			if err == nil {
				err = a.begin()
			}
			if err != nil {
				a.restoreHeaders()
				a.end()
			}
			return err
		}
		a.end()
		if err != nil {
			return err
		}
		if err := sd.s.prompts.awaitRedelivery(ctx); err != nil { // prompts of a lost runtime come first
			return err
		}
	}
}

// enter loads the session if no runtime has it, and keeps it there.
func (a *attempt) enter(ctx context.Context) error {
	for {
		if a.rt = a.sd.s.loader.holdLoaded(); a.rt != nil {
			return nil
		}
		if _, err := a.sd.s.loader.Load(ctx); err != nil {
			return err
		}
	}
}

// replaceHeaders takes the provider's headers away, if the message has its own.
func (a *attempt) replaceHeaders(ctx context.Context) error {
	if !a.m.Override || !a.sd.s.settings.hasHeaders() {
		return nil
	}
	a.overrides = true
	return a.sd.takeHeaders(ctx, a.rt)
}

// restoreHeaders gives the provider's headers back, if the message replaced them.
func (a *attempt) restoreHeaders() {
	if a.overrides {
		a.sd.restoreHeaders(context.WithoutCancel(a.ctx), a.rt)
	}
}

// begin puts the message into the outbox, which has it before the CLI, and has a waiter wait for its turn.
func (a *attempt) begin() error {
	sd := a.sd
	a.before = sd.s.journal.Appended()
	params := a.m.Params.Clone()
	params.SetString("sessionId", sd.s.id)
	a.w = sd.s.turns.expect(sd.s.turns.startSpan(a.ctx, &params))
	a.prompt = a.m.outboxForm(params)
	n, inMemory, err := sd.s.prompts.add(a.prompt, a.before)
	problem := sd.s.prompts.Outbox().Problem()
	a.n, a.unstored = n, err == nil && inMemory && problem != nil
	if a.unstored && sd.s.journal.Remote() { // this process may end with its storage
		sd.s.prompts.drop(n)
		err = unavailable(problem)
	}
	if err != nil {
		a.w.Close()
		return err
	}
	sd.s.mu.Lock()
	a.w.state.Immediate, a.w.state.Prompt = a.m.Immediate, params.Get("prompt")
	sd.s.prompts.expect(a.w.state, n)
	sd.s.mu.Unlock()
	return nil
}

// call gives the message to the CLI.
func (a *attempt) call() {
	sd := a.sd
	a.sent.Waiter = a.w
	sd.give(a.ctx, a.rt, cmp.Or(a.m.Method, methodSend), a.prompt.Params, &a.sent, func(err error) {
		sd.s.host.Spawn(func() { // this may be the reader of the CLI
			if err != nil {
				a.failed(err)
				return
			}
			a.accepted()
		})
	})
}

// accepted has the outbox note what the CLI has replied, before the caller has it. It may hang in the disk's call.
func (a *attempt) accepted() {
	sd, sent, ids := a.sd, &a.sent, messageIDs(a.sent.Result)
	sd.s.prompts.accepted(a.n, ids, sent.end, func(durable, again bool, err error) {
		if err != nil { // another server has the session; the CLI has the message, and its turn is not that of the one before
			a.w.identify(ids...)
			a.restoreHeaders()
			a.end()
			a.done(Sent{}, err)
			return
		}
		sent.MessageID = firstOf(ids)
		unstored := a.unstored || !durable && sd.s.prompts.Outbox().Problem() != nil
		if unstored {
			sd.s.prompts.flusher.retry() // until the disk works again
		}
		a.w.identify(ids...)
		if again {
			sd.s.mu.Lock()
			sd.s.prompts.redeliver()
			sd.s.mu.Unlock()
		}
		if a.overrides { // the next message waits for the end of the turn
			sd.s.loader.letGo()
			sd.restoreAfter(a.w.state, a.rt)
		} else {
			a.end()
		}
		if unstored && sd.s.journal.Remote() {
			a.doneWhenStored()
			return
		}
		sent.InMemory = unstored
		a.done(*sent, nil)
	})
}

// doneWhenStored ends a message that the CLI has accepted when the storage has that. Without that the next owner of the session
// would take it for a message whose call has failed. If the storage does not take it in time, nobody knows what that owner has: the
// storage may take it later, and the history may have the message.
func (a *attempt) doneWhenStored() {
	started := a.sd.s.host.Go(func(ctx context.Context) {
		if err := a.sd.s.prompts.awaitStored(ctx); err != nil {
			a.done(Sent{}, unavailable(errors.Join(ErrUnsettled, err)))
			return
		}
		a.done(a.sent, nil)
	})
	if !started {
		a.done(Sent{}, async.ErrStopping)
	}
}

// failed ends a message whose call has failed. If the runtime no longer had the session, the message is sent again.
func (a *attempt) failed(err error) {
	sd := a.sd
	ctx := context.WithoutCancel(a.ctx)
	var sent Sent
	if !errors.Is(err, errUnanswered) {
		sent, err = sd.unconfirmed(ctx, a, err)
	}
	sd.forget(a.w)
	a.restoreHeaders()
	again := err != nil && !a.again && sd.s.loader.moved(ctx, a.rt, err)
	a.end()
	if again {
		next := &attempt{sd: sd, ctx: a.ctx, m: a.m, done: a.done, again: true}
		next.startLater()
		return
	}
	a.done(sent, err)
}

// end lets the next message begin.
func (a *attempt) end() {
	if a.rt != nil {
		a.sd.s.loader.letGo()
	}
	a.sd.s.prompts.sending.release()
}

// give makes the call, with the waiter in sent, which was registered before. It sets what the CLI replies in sent, and then
// calls done as that of Runtime.Start.
func (sd *Sender) give(
	ctx context.Context, rt Runtime, method string, params []byte, sent *Sent, done func(error),
) {
	bound := sd.s.turns.machine.Bounds.Send // the next messages of the session wait behind this one
	end := func(result json.RawMessage, err error) {
		if _, refused := errors.AsType[*rpcconn.Error](err); err == nil || refused { // the reply is being read
			sent.At, sent.end = sd.s.journal.Last(), sd.s.journal.Appended()
			sent.Waiter.accept()
		}
		switch {
		case err == nil:
			sent.Result = result
			done(nil)
		case errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, rpcconn.ErrClosed):
			done(sd.unanswered(method, bound))
		default:
			done(Classify(err, method))
		}
	}
	if err := rt.Start(ctx, method, params, bound, end); err != nil {
		end(nil, err)
	}
}

// size is about the size of the message's parameters.
func (m Message) size() (n int) {
	for _, p := range m.Params {
		n += len(p.Key) + len(p.Value)
	}
	return n
}
