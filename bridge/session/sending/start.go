package sending

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/copilot-grpc/copilot-grpc/bridge/journal"
	"github.com/copilot-grpc/copilot-grpc/bridge/rpcconn"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/outbox"
	"github.com/copilot-grpc/copilot-grpc/bridge/session/prompts"
)

// maxStarted bounds the messages of Start. A larger one has a file in the outbox, which is written before the call.
const maxStarted = outbox.MaxInLog / 2

// Start sends a message as Send does, without a goroutine that waits for the CLI. If it returns true, it calls done once
// with what Send returns, on another goroutine, which done may block. The message is sent also if ctx ends meanwhile.
// Start returns false, and does nothing, if something has to be waited for first: a load, another message, a disk.
func (s *Sender) Start(ctx context.Context, m Message, done func(Sent, error)) (ok bool) {
	if !s.Startable(m) || !prompts.TryAcquire(s.cfg.Prompts) {
		return false
	}
	c := &started{s: s, ctx: ctx, done: done}
	defer func() {
		if !ok { // also after a panic, which the caller may handle
			c.end()
		}
	}()
	c.rt, c.release = s.cfg.Loaded()
	if c.rt == nil || s.cfg.Prompts.Owes() {
		return false
	}
	if c.attempt, _ = s.begin(ctx, c.rt, m); c.attempt == nil {
		return false // Send returns the error
	}
	c.start()
	return true
}

// Startable reports whether Start sends messages like m, if nothing has to be waited for.
func (s *Sender) Startable(m Message) bool {
	return !m.Override && !m.Immediate && m.size() <= maxStarted && !journal.Remote(s.cfg.Journal)
}

// size is about the size of the message's parameters.
func (m Message) size() (n int) {
	for _, p := range m.Params {
		n += len(p.Key) + len(p.Value)
	}
	return n
}

// started is a message of Start.
type started struct {
	s       *Sender
	ctx     context.Context // the caller's
	rt      Runtime
	attempt *attempt
	sent    Sent
	release func() // nil if no runtime has the session
	done    func(Sent, error)
}

// start makes the call.
func (c *started) start() {
	s, a := c.s, c.attempt
	c.sent.Waiter = a.w
	a.params.SetString("sessionId", s.cfg.Session)
	bound := s.cfg.Turns.Machine().Bounds.Send
	end := func(result json.RawMessage, err error) {
		s.cfg.Spawn(func() { // this may be the reader of the CLI
			switch {
			case err == nil:
				c.sent.Result = result
				c.accepted()
			case errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, rpcconn.ErrClosed):
				c.failed(s.unanswered(methodSend, bound))
			default:
				c.failed(s.cfg.Classify(err, methodSend))
			}
		})
	}
	if err := c.rt.Start(c.ctx, methodSend, a.params.JSON(), bound, end, s.onReply(&c.sent)); err != nil {
		end(nil, err)
	}
}

// accepted has the outbox note what the CLI has replied. It may hang in the disk's call.
func (c *started) accepted() {
	s, a := c.s, c.attempt
	s.accepted(a, c.sent, func(sent Sent, err error) {
		c.end()
		c.done(sent, err)
	})
}

// failed ends a message whose call has failed. If the runtime no longer had the session, the message is sent again.
func (c *started) failed(err error) {
	sent, err := c.s.failed(c.ctx, c.attempt, err)
	again := err != nil && c.s.cfg.Moved(c.ctx, c.rt, err)
	c.end()
	if again {
		sent, err = c.s.Send(c.ctx, c.attempt.m)
	}
	c.done(sent, err)
}

// end lets the next message begin.
func (c *started) end() {
	if c.release != nil {
		c.release()
	}
	c.s.cfg.Prompts.Release()
}
