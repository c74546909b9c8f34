package sending

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"github.com/copilot-grpc/copilot-grpc/bridge/async"
	"github.com/copilot-grpc/copilot-grpc/bridge/fault"
	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/jsonobj"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/prompts"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/turns"
)

// maxStarted bounds the messages that Start sends without a goroutine. A larger one has a file in the outbox, which is
// written before the call.
const maxStarted = outbox.MaxInLog / 2

// Start sends a message to the agent. It calls done once with the end of that, on another goroutine, which done may block.
// If the message must wait for something first (a load, another message, a disk), Start leaves it to a goroutine, and the
// message ends with ctx meanwhile. Once the CLI has the message, the end of ctx does not take it back; no goroutine waits
// for the CLI's reply, which may take Bounds.Send.
func (s *Sender) Start(ctx context.Context, m Message, done func(Sent, error)) {
	a := &attempt{s: s, ctx: ctx, m: m, done: done}
	if a.startAtOnce() {
		return
	}
	a.startLater()
}

// attempt is a message on its way to the CLI.
type attempt struct {
	s    *Sender
	ctx  context.Context // the caller's
	m    Message
	done func(Sent, error)
	// again: the runtime no longer had the session when it received the message, which another one receives now.
	again bool

	// The rest is set when it is the message's turn to be sent.

	rt Runtime
	// release lets the session be unloaded.
	release func()
	// overrides: the message's headers have replaced the provider's.
	overrides bool
	params    jsonobj.Object
	w         *turns.Waiter
	n         uint64           // in the outbox
	before    journal.Position // the journal's end before the call
	unstored  bool
	sent      Sent
}

// startAtOnce sends the message unless something has to be waited for first; then it does nothing, and returns false.
func (a *attempt) startAtOnce() bool {
	s := a.s
	if a.m.Override || a.m.Immediate || a.m.size() > maxStarted || journal.Remote(s.cfg.Journal) ||
		!prompts.TryAcquire(s.cfg.Prompts) {
		return false
	}
	if a.rt, a.release = s.cfg.Loaded(); a.rt == nil || s.cfg.Prompts.Owes() {
		a.end()
		return false
	}
	if err := a.begin(); err != nil {
		a.end()
		s.cfg.Spawn(func() { a.done(Sent{}, err) })
		return true
	}
	a.call()
	return true
}

// startLater sends the message when nothing has to be waited for any longer.
func (a *attempt) startLater() {
	started := a.s.cfg.Go(func(bridge context.Context) {
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
		a.s.cfg.Spawn(func() { a.done(Sent{}, async.ErrStopping) })
	}
}

// prepare waits until it is the message's turn to be sent: until the storage takes it, all messages before it were sent,
// and a runtime has the session.
func (a *attempt) prepare(ctx context.Context) error {
	s := a.s
	s.cfg.Lock.Lock()
	steering := a.m.Immediate && s.replacedIn != nil
	s.cfg.Lock.Unlock()
	if steering {
		return fault.New(fault.SessionBusy, "a turn with its own provider headers is running").WithField("prompt.mode")
	}
	if err := journal.AwaitStorage(ctx, s.cfg.Journal, storagePatience); err != nil {
		return unavailable(err)
	}
	for {
		if err := s.cfg.Prompts.Acquire(ctx); err != nil {
			return err
		}
		err := a.enter(ctx)
		if err == nil && !s.cfg.Prompts.Owes() {
			if err = a.replaceHeaders(ctx); err == nil {
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
		if err := s.cfg.Prompts.AwaitDelivery(ctx); err != nil { // prompts of a lost runtime come first
			return err
		}
	}
}

// enter loads the session if no runtime has it, and keeps it there.
func (a *attempt) enter(ctx context.Context) error {
	for {
		if a.rt, a.release = a.s.cfg.Loaded(); a.rt != nil {
			return nil
		}
		if err := a.s.cfg.Load(ctx); err != nil {
			return err
		}
	}
}

// replaceHeaders takes the provider's headers away, if the message has its own.
func (a *attempt) replaceHeaders(ctx context.Context) error {
	if !a.m.Override || !a.s.cfg.HasHeaders() {
		return nil
	}
	a.overrides = true
	return a.s.takeHeaders(ctx, a.rt)
}

// restoreHeaders gives the provider's headers back, if the message replaced them.
func (a *attempt) restoreHeaders() {
	if a.overrides {
		a.s.restoreHeaders(context.WithoutCancel(a.ctx), a.rt)
	}
}

// begin puts the message into the outbox, which has it before the CLI, and has a waiter wait for its turn.
func (a *attempt) begin() error {
	s := a.s
	a.params, a.before = a.m.Params.Clone(), s.cfg.Journal.Last()
	a.w = s.cfg.Turns.Expect(s.cfg.Turns.StartSpan(a.ctx, &a.params))
	n, inMemory, err := s.cfg.Prompts.Add(a.m.outboxForm(a.params), a.before)
	problem := s.cfg.Prompts.Box().Problem()
	a.n, a.unstored = n, err == nil && inMemory && problem != nil
	if a.unstored && journal.Remote(s.cfg.Journal) { // this process may end with its storage
		s.cfg.Prompts.Box().Drop(n)
		err = unavailable(problem)
	}
	if err != nil {
		a.w.Close()
		return err
	}
	s.cfg.Lock.Lock()
	a.w.State().Immediate, a.w.State().Prompt = a.m.Immediate, a.params.Get("prompt")
	s.cfg.Prompts.Expect(s.cfg.Tx, a.w.State(), n)
	s.cfg.Lock.Unlock()
	return nil
}

// call gives the message to the CLI.
func (a *attempt) call() {
	s := a.s
	a.sent.Waiter = a.w
	s.give(a.ctx, a.rt, cmp.Or(a.m.Method, methodSend), a.params, &a.sent, func(err error) {
		s.cfg.Spawn(func() { // this may be the reader of the CLI
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
	s, sent, ids := a.s, &a.sent, prompts.IDs(a.sent.Result)
	s.cfg.Prompts.Accepted(a.n, ids, func(durable, again bool, err error) {
		if err != nil {
			s.forget(a.w)
			a.restoreHeaders()
			a.end()
			a.done(Sent{}, err)
			return
		}
		sent.MessageID = prompts.First(ids)
		sent.InMemory = a.unstored || !durable && s.cfg.Prompts.Box().Problem() != nil
		a.w.Identify(prompts.Last(ids))
		if again {
			s.cfg.Lock.Lock()
			s.cfg.Prompts.Deliver(s.cfg.Tx)
			s.cfg.Lock.Unlock()
		}
		if a.overrides { // the next message waits for the end of the turn
			a.release()
			s.restoreAfter(a.w.State(), a.rt)
		} else {
			a.end()
		}
		a.done(*sent, nil)
	})
}

// failed ends a message whose call has failed. If the runtime no longer had the session, the message is sent again.
func (a *attempt) failed(err error) {
	s := a.s
	ctx := context.WithoutCancel(a.ctx)
	var sent Sent
	if !errors.Is(err, errUnanswered) {
		sent, err = s.unconfirmed(ctx, a, err)
	}
	s.forget(a.w)
	a.restoreHeaders()
	again := err != nil && !a.again && s.cfg.Moved(ctx, a.rt, err)
	a.end()
	if again {
		next := &attempt{s: s, ctx: a.ctx, m: a.m, done: a.done, again: true}
		next.startLater()
		return
	}
	a.done(sent, err)
}

// end lets the next message begin.
func (a *attempt) end() {
	if a.release != nil {
		a.release()
	}
	a.s.cfg.Prompts.Release()
}

// give makes the call, with the waiter in sent, which was registered before. It sets what the CLI replies in sent, and then
// calls done as that of Runtime.Start.
func (s *Sender) give(
	ctx context.Context, rt Runtime, method string, params jsonobj.Object, sent *Sent, done func(error),
) {
	params.SetString("sessionId", s.cfg.Session)
	bound := s.cfg.Turns.Machine().Bounds.Send // the next messages of the session wait behind this one
	end := func(result json.RawMessage, err error) {
		switch {
		case err == nil:
			sent.Result = result
			done(nil)
		case errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, rpcconn.ErrClosed):
			done(s.unanswered(method, bound))
		default:
			done(s.cfg.Classify(err, method))
		}
	}
	replied := rpcconn.OnReply(func() {
		sent.At = s.cfg.Journal.Last()
		sent.Waiter.Accept()
	})
	if err := rt.Start(ctx, method, params.JSON(), bound, end, replied); err != nil {
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
