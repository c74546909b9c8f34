package rpcconn

import (
	"bytes"
	"container/list"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// outgoing is one message to the peer and, for a call, its state.
type outgoing struct {
	id       uint64 // 0: no reply is expected
	frame    []byte
	priority bool
	onReply  func()
	onQueued func()
	onFree   func()
	slot     chan struct{} // the pool to which its slot returns
	// over is closed when the reply was processed, after onReply; nil if no reply is expected.
	over chan struct{}
	// async is set instead of over for a call that no goroutine waits for.
	async *started

	// outbound.mu guards the following fields.
	place *list.Element
	taken bool

	// Conn.mu guards the following fields; result and err are final once answered is set.
	answered  bool
	abandoned bool
	grace     *time.Timer
	result    json.RawMessage
	err       error
}

// Call sends a request and waits for its reply. params are written unchanged; nil omits the member. The error is an
// *Error if the peer replied with one, and a *CallError otherwise.
func (c *Conn) Call(ctx context.Context, method string, params []byte, opts ...CallOption) (json.RawMessage, error) {
	out := &outgoing{id: c.lastID.Add(1), over: make(chan struct{}), onFree: func() {}}
	for _, opt := range opts {
		opt(out)
	}
	if err := c.checkBody(params); err != nil {
		out.onFree()
		return nil, &CallError{Method: method, Err: err}
	}
	if err := c.acquire(ctx, out); err != nil {
		out.onFree()
		return nil, &CallError{Method: method, Err: err}
	}
	out.frame = requestFrame(out.id, method, params)
	c.mu.Lock()
	c.calls[out.id] = out
	c.mu.Unlock()

	if err := c.out.push(out); err != nil {
		c.forget(out)
		return nil, &CallError{Method: method, Err: err}
	}
	if out.onQueued != nil {
		out.onQueued()
	}
	return c.await(ctx, method, out)
}

// checkBody returns an error for params or a result that are not one JSON value, or nested so deeply that the peer
// would not read the message. nil is valid.
func (c *Conn) checkBody(b []byte) error {
	switch {
	case b == nil:
		return nil
	case !isOneValue(b):
		return ErrInvalidJSON
	case c.opts.MaxDepth > 0 && nesting(b) >= c.opts.MaxDepth:
		return ErrTooDeep
	}
	return nil
}

// await waits for the reply, the end of ctx, or the end of the connection. The reader wakes it.
func (c *Conn) await(ctx context.Context, method string, out *outgoing) (json.RawMessage, error) {
	select {
	case <-out.over:
	case <-ctx.Done():
		if sent, answered := c.abandon(out); !answered {
			return nil, &CallError{Method: method, Sent: sent, Err: endOf(ctx)}
		}
	case <-c.done:
		if !c.wasAnswered(out) {
			c.forget(out)
			return nil, &CallError{Method: method, Sent: c.out.wasTaken(out), Err: c.cause}
		}
	}
	<-out.over // the reader has the reply and will close over
	return out.reply(method)
}

// reply returns what the peer has replied.
func (out *outgoing) reply(method string) (json.RawMessage, error) {
	var bad *Error
	if out.err != nil && !errors.As(out.err, &bad) {
		return nil, &CallError{Method: method, Sent: true, Err: out.err}
	}
	return out.result, out.err
}

// Notify sends a notification. It returns when the notification is queued.
func (c *Conn) Notify(ctx context.Context, method string, params []byte) error {
	if err := c.checkBody(params); err != nil {
		return &CallError{Method: method, Err: err}
	}
	if ctx.Err() != nil {
		return &CallError{Method: method, Err: endOf(ctx)}
	}
	if err := c.out.push(&outgoing{frame: requestFrame(0, method, params)}); err != nil {
		return &CallError{Method: method, Err: err}
	}
	return nil
}

// Tell is like Notify, but waits for room if the peer reads too slowly.
func (c *Conn) Tell(ctx context.Context, method string, params []byte) error {
	for {
		err := c.Notify(ctx, method, params)
		if !isFull(err) {
			return err
		}
		wait, possible := c.out.fitsLow(len(params) + len(method) + headerRoom + 64)
		if !possible {
			return err
		}
		if wait == nil {
			continue
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return &CallError{Method: method, Err: endOf(ctx)}
		case <-c.done:
			return &CallError{Method: method, Err: c.cause}
		}
	}
}

// acquire takes an in-flight slot. It waits until one is free.
func (c *Conn) acquire(ctx context.Context, out *outgoing) error {
	if ctx.Err() != nil {
		return endOf(ctx)
	}
	if c.acquireNow(out) {
		return nil
	}
	var reserved chan struct{}
	if out.priority {
		reserved = c.reserved
	}
	c.stats.slotWaits.Add(1)
	select {
	case c.ordinary <- struct{}{}:
		out.slot = c.ordinary
	case reserved <- struct{}{}:
		out.slot = reserved
	case <-ctx.Done():
		return endOf(ctx)
	case <-c.done:
		return c.cause
	}
	return nil
}

// endOf returns why a context ended: its error, for which callers test, and its cause.
func endOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// forget releases a call's id and its slot.
func (c *Conn) forget(out *outgoing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.forgetLocked(out)
}

func (c *Conn) forgetLocked(out *outgoing) {
	if c.calls[out.id] != out {
		return
	}
	delete(c.calls, out.id)
	if out.grace != nil {
		out.grace.Stop()
	}
	<-out.slot
	out.onFree()
}

// abandon ends a call whose context has ended. The call keeps its slot while the peer is probably still processing
// it.
func (c *Conn) abandon(out *outgoing) (sent, answered bool) {
	sent = !c.out.drop(out)
	c.mu.Lock()
	defer c.mu.Unlock()
	if out.answered {
		return true, true
	}
	out.onReply = nil
	switch {
	case !sent:
		c.stats.droppedUnsent.Add(1)
		c.forgetLocked(out)
		return false, false
	case c.Err() != nil:
		c.forgetLocked(out)
		return true, false
	}
	c.stats.abandoned.Add(1)
	out.abandoned = true
	c.unanswered[out.id] = struct{}{}
	out.grace = time.AfterFunc(c.opts.AbandonGrace, func() { c.forget(out) })
	return true, false
}

func (c *Conn) wasAnswered(out *outgoing) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return out.answered
}

// reply completes the call of a reply. Only the reader goroutine calls it.
func (c *Conn) reply(m *message) {
	result, err := outcome(m)
	out := c.answer(m.id, result, err)
	if out == nil {
		return
	}
	if out.onReply != nil {
		out.onReply()
	}
	c.stats.replies.Add(1)
	c.forget(out)
	if out.async != nil {
		out.async.finish(out.reply(out.async.method))
		return
	}
	close(out.over)
}

// answer finds the active call of a reply and sets its outcome.
func (c *Conn) answer(rawID []byte, result json.RawMessage, err error) *outgoing {
	id, numeric := replyID(rawID)
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.calls[id]
	_, late := c.unanswered[id]
	switch {
	case numeric && late:
		delete(c.unanswered, id)
		c.stats.lateReplies.Add(1)
		if out != nil {
			c.forgetLocked(out)
		}
		return nil
	case !numeric || out == nil || out.answered:
		c.stats.unknownReplies.Add(1)
		c.opts.Logger.Warn("reply ignored", slog.String("reason", "no such call"), slog.Bool("error", err != nil))
		return nil
	}
	out.answered, out.result, out.err = true, result, err
	return out
}

// outcome returns a reply's result or error.
func outcome(m *message) (json.RawMessage, error) {
	switch {
	case m.err != nil && !isNull(m.err):
		e := new(Error)
		if json.Unmarshal(m.err, e) != nil {
			return nil, ErrBadReply
		}
		return nil, e
	case m.result != nil:
		return bytes.Clone(m.result), nil
	default:
		return nil, ErrBadReply
	}
}
