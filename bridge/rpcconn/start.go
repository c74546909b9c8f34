package rpcconn

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"
)

// started is the end of a call that no goroutine waits for.
type started struct {
	method string
	done   func(json.RawMessage, error)
	limit  *time.Timer
	over   atomic.Bool
}

// finish reports the end of the call, once.
func (s *started) finish(result json.RawMessage, err error) {
	if s.over.CompareAndSwap(false, true) {
		s.limit.Stop()
		s.done(result, err)
	}
}

// Start sends a request as Call does, without waiting for anything. If it returns nil, done is called once with what
// Call returns: on the reader goroutine when the reply is read, as OnReply, or on another goroutine if there is no reply
// within limit or the connection ends first. done must not block. Start fails at once where Call waits for a slot.
func (c *Conn) Start(
	method string, params []byte, limit time.Duration, done func(json.RawMessage, error), opts ...CallOption,
) error {
	out := &outgoing{id: c.lastID.Add(1), onFree: func() {}, async: &started{method: method, done: done}}
	for _, opt := range opts {
		opt(out)
	}
	fail := func(err error) error {
		out.onFree()
		return &CallError{Method: method, Err: err}
	}
	if err := c.checkBody(params); err != nil {
		return fail(err)
	}
	if !c.acquireNow(out) {
		return fail(ErrNoSlot)
	}
	out.frame = requestFrame(out.id, method, params)
	out.async.limit = time.AfterFunc(limit, func() {
		if sent, answered := c.abandon(out); !answered {
			out.async.finish(nil, &CallError{Method: method, Sent: sent, Err: context.DeadlineExceeded})
		}
	})
	c.mu.Lock()
	c.calls[out.id] = out
	c.mu.Unlock()
	if err := c.out.push(out); err != nil {
		c.forget(out)
		out.async.limit.Stop()
		if out.async.over.CompareAndSwap(false, true) {
			return &CallError{Method: method, Err: err}
		}
	}
	return nil
}

// acquireNow takes an in-flight slot if one is free.
func (c *Conn) acquireNow(out *outgoing) bool {
	var reserved chan struct{}
	if out.priority {
		reserved = c.reserved
	}
	select {
	case c.ordinary <- struct{}{}:
		out.slot = c.ordinary
		return true
	default:
	}
	select {
	case reserved <- struct{}{}:
		out.slot = reserved
		return true
	default:
		return false
	}
}

// endStarted ends the calls of Start that have no reply when the connection ends. It is called once, when no further
// call can be queued.
func (c *Conn) endStarted(cause *CloseError) {
	c.mu.Lock()
	var ended []*outgoing
	for _, out := range c.calls {
		if out.async != nil && !out.answered {
			ended = append(ended, out)
		}
	}
	c.mu.Unlock()
	if len(ended) == 0 {
		return
	}
	c.tasks.Go(func() {
		for _, out := range ended {
			c.forget(out)
			out.async.finish(nil, &CallError{Method: out.async.method, Sent: c.out.wasTaken(out), Err: cause})
		}
	})
}
