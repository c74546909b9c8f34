package rpcconn

import (
	"bytes"
	"cmp"
	"container/list"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/copilot-grpc/copilot-grpc/bridge/translate"
)

// outgoing is one message to the peer and, for a call, its state.
type outgoing struct {
	id       uint64 // 0: no reply is expected
	method   string
	frame    []byte
	priority bool
	onReply  func()
	onQueued func()
	onFree   func()
	// done receives the end of the call, which over reports. result and err are final then.
	done  func(json.RawMessage, error)
	over  atomic.Bool
	limit *time.Timer // nil without one

	// outbound.mu guards the following fields.
	place   *list.Element
	taken   bool
	dropped bool

	// Conn.mu guards the following fields until the call is over.
	turn      *list.Element // its place among the calls that wait for a slot
	answered  bool
	abandoned bool
	grace     *time.Timer
	result    json.RawMessage
	err       error
}

// Start sends a request, without waiting for anything. If it returns nil, done is called once with the result or an
// error: an *Error if the peer replied with one, and a *CallError otherwise. done runs on the reader goroutine when the
// reply is read, as OnReply, or on another goroutine if there is no reply within limit or the connection ends first; it
// must not block. A limit of 0 is none. params are written unchanged; nil omits the member. While as many calls are in
// flight as are allowed, the call waits for its turn, in the order of Start.
func (c *Conn) Start(
	method string, params []byte, limit time.Duration, done func(json.RawMessage, error), opts ...CallOption,
) error {
	_, err := c.start(context.Background(), method, params, limit, done, opts)
	return err
}

// Call is Start, and waits for the end of the call or of ctx.
func (c *Conn) Call(ctx context.Context, method string, params []byte, opts ...CallOption) (json.RawMessage, error) {
	over := make(chan struct{})
	out, err := c.start(ctx, method, params, 0, func(json.RawMessage, error) { close(over) }, opts)
	if err != nil {
		return nil, err
	}
	select {
	case <-over:
	case <-ctx.Done():
		c.abandon(out, endOf(ctx))
		<-over
	}
	var failed *CallError
	if ctx.Err() != nil && errors.As(out.err, &failed) && errors.Is(failed.Err, ErrClosed) {
		return nil, out.failure(failed.Sent, endOf(ctx)) // the end of ctx may be why the connection has ended
	}
	return out.result, out.err
}

// start begins a call, unless ctx has ended.
func (c *Conn) start(
	ctx context.Context, method string, params []byte, limit time.Duration, done func(json.RawMessage, error),
	opts []CallOption,
) (*outgoing, error) {
	out := &outgoing{id: c.lastID.Add(1), method: method, onFree: func() {}, done: done}
	for _, opt := range opts {
		opt(out)
	}
	err := c.checkBody(params)
	if err == nil && ctx.Err() != nil {
		err = endOf(ctx)
	}
	if err != nil {
		out.onFree()
		return nil, out.failure(false, err)
	}
	out.frame = requestFrame(out.id, method, params)
	now, err := c.enter(out, limit)
	if err != nil {
		out.onFree()
		return nil, out.failure(false, err)
	}
	if !now {
		return out, nil
	}
	if err := c.out.push(out); err != nil {
		c.free(out)
		if !errors.Is(err, errDropped) && out.end() {
			return nil, out.failure(false, err)
		}
		return out, nil // it ends in abandon
	}
	if out.onQueued != nil {
		out.onQueued()
	}
	return out, nil
}

// enter takes an in-flight slot for a call, or queues the call for one. It reports whether the call is to be sent now.
func (c *Conn) enter(out *outgoing, limit time.Duration) (now bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now = c.fits(out)
	switch {
	case c.ended != nil:
		return false, c.ended
	case !now && c.urgent.Len()+c.waiting.Len() >= c.opts.MaxWaiting:
		return false, ErrTooManyCalls
	}
	if limit > 0 {
		out.limit = time.AfterFunc(limit, func() { c.abandon(out, context.DeadlineExceeded) })
	}
	if now {
		c.calls[out.id] = out
		return true, nil
	}
	c.stats.slotWaits.Add(1)
	out.turn = c.queueOf(out).PushBack(out)
	return false, nil
}

// fits reports whether there is a slot for a call. The caller holds mu.
func (c *Conn) fits(out *outgoing) bool {
	if out.priority {
		return len(c.calls) < c.opts.MaxInFlight
	}
	return len(c.calls) < c.opts.MaxInFlight-c.opts.ReservedInFlight
}

// queueOf returns the queue in which a call waits for a slot.
func (c *Conn) queueOf(out *outgoing) *list.List {
	if out.priority {
		return &c.urgent
	}
	return &c.waiting
}

// free releases a call's id and its slot, and sends the calls that waited for it.
func (c *Conn) free(out *outgoing) {
	c.mu.Lock()
	next := c.freeLocked(out)
	c.mu.Unlock()
	c.send(next)
}

// freeLocked is free with mu held. It returns the calls to send.
func (c *Conn) freeLocked(out *outgoing) (next []*outgoing) {
	if c.calls[out.id] != out {
		return nil
	}
	delete(c.calls, out.id)
	if out.grace != nil {
		out.grace.Stop()
	}
	out.onFree()
	for _, queue := range []*list.List{&c.urgent, &c.waiting} {
		for e := queue.Front(); e != nil && c.fits(e.Value.(*outgoing)); e = queue.Front() {
			out := queue.Remove(e).(*outgoing)
			out.turn = nil
			c.calls[out.id] = out
			next = append(next, out)
		}
	}
	return next
}

// send sends calls that have a slot since they were started.
func (c *Conn) send(calls []*outgoing) {
	for len(calls) > 0 {
		out := calls[0]
		calls = calls[1:]
		err := c.out.push(out)
		if err == nil {
			if out.onQueued != nil {
				out.onQueued()
			}
			continue
		}
		c.mu.Lock()
		calls = append(calls, c.freeLocked(out)...)
		c.mu.Unlock()
		if !errors.Is(err, errDropped) { // else it ends in abandon
			c.finish(out, nil, out.failure(false, err))
		}
	}
}

// end reports whether the call was not over before, and makes it so.
func (out *outgoing) end() bool {
	if !out.over.CompareAndSwap(false, true) {
		return false
	}
	if out.limit != nil {
		out.limit.Stop()
	}
	return true
}

// finish reports the end of a call, unless it is over.
func (c *Conn) finish(out *outgoing, result json.RawMessage, err error) {
	if out.end() {
		out.result, out.err = result, err
		out.done(result, err)
	}
}

// failure is the error of a call without a reply.
func (out *outgoing) failure(sent bool, err error) *CallError {
	return &CallError{Method: out.method, Sent: sent, Err: err}
}

// checkBody returns an error for params or a result that are not one JSON value, or nested so deeply that the peer
// would not read the message. nil is valid.
func (c *Conn) checkBody(b []byte) error {
	if b == nil {
		return nil
	}
	levels := maxDepth
	if c.opts.MaxDepth > 0 {
		levels = c.opts.MaxDepth - 1 // the message around it is one
	}
	err := translate.Check(b, levels)
	switch {
	case errors.Is(err, &translate.Error{Kind: translate.KindDepth}):
		return ErrTooDeep
	case err != nil:
		return ErrInvalidJSON
	}
	return nil
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

// endOf returns why a context ended: its error, for which callers test, and its cause.
func endOf(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// abandon ends a call that has no reply. It keeps its slot while the peer is probably still processing it.
func (c *Conn) abandon(out *outgoing, reason error) {
	sent := !c.out.drop(out)
	c.mu.Lock()
	if out.answered { // the reader has the reply and ends the call
		c.mu.Unlock()
		return
	}
	out.onReply = nil
	var next []*outgoing
	switch {
	case out.turn != nil:
		c.queueOf(out).Remove(out.turn)
		out.turn = nil
		out.onFree()
	case !sent:
		c.stats.droppedUnsent.Add(1)
		next = c.freeLocked(out)
	case c.ended != nil:
		next = c.freeLocked(out)
	case c.calls[out.id] == out:
		c.stats.abandoned.Add(1)
		out.abandoned = true
		c.unanswered[out.id] = struct{}{}
		out.grace = time.AfterFunc(c.opts.AbandonGrace, func() { c.free(out) })
	}
	c.mu.Unlock()
	c.send(next)
	c.finish(out, nil, out.failure(sent, reason))
}

// endCalls ends all calls that have no reply when the connection ends, in the order in which they began.
func (c *Conn) endCalls(cause *CloseError) {
	c.mu.Lock()
	c.ended = cause
	var calls, waiting []*outgoing
	for _, out := range c.calls {
		if !out.answered {
			calls = append(calls, out)
		}
	}
	slices.SortFunc(calls, func(a, b *outgoing) int { return cmp.Compare(a.id, b.id) })
	for _, queue := range []*list.List{&c.urgent, &c.waiting} {
		for e := queue.Front(); e != nil; e = e.Next() {
			out := e.Value.(*outgoing)
			out.turn = nil
			waiting = append(waiting, out)
		}
		queue.Init()
	}
	c.mu.Unlock()
	if len(calls)+len(waiting) == 0 {
		return
	}
	c.tasks.Go(func() {
		for _, out := range calls {
			c.free(out)
			c.finish(out, nil, out.failure(c.out.wasTaken(out), cause))
		}
		for _, out := range waiting {
			out.onFree()
			c.finish(out, nil, out.failure(false, cause))
		}
	})
}

// reply completes the call of a reply. Only the reader goroutine calls it.
func (c *Conn) reply(m *message) {
	result, err := outcome(m)
	out := c.answer(m.id, err)
	if out == nil {
		return
	}
	if out.onReply != nil {
		out.onReply()
	}
	c.stats.replies.Add(1)
	c.free(out)
	if errors.Is(err, ErrBadReply) {
		err = out.failure(true, err)
	}
	c.finish(out, result, err)
}

// answer finds the call of a reply, and marks it as answered. It returns nil if there is none.
func (c *Conn) answer(rawID []byte, err error) *outgoing {
	id, numeric := replyID(rawID)
	c.mu.Lock()
	out := c.calls[id]
	_, late := c.unanswered[id]
	switch {
	case numeric && late:
		delete(c.unanswered, id)
		c.stats.lateReplies.Add(1)
		var next []*outgoing
		if out != nil {
			next = c.freeLocked(out)
		}
		c.mu.Unlock()
		c.send(next)
		return nil
	case !numeric || out == nil || out.answered:
		c.mu.Unlock()
		c.stats.unknownReplies.Add(1)
		c.opts.Logger.Warn("reply ignored", slog.String("reason", "no such call"), slog.Bool("error", err != nil))
		return nil
	}
	out.answered = true
	c.mu.Unlock()
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
