package rpcconn

import (
	"container/list"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Conn is one JSON-RPC connection. It is safe for concurrent use; the callbacks of Options may call Close and Notify.
type Conn struct {
	opts   Options
	rwc    io.ReadWriteCloser
	frames *frameReader
	out    *outbound
	serve  *server

	lastID atomic.Uint64

	mu    sync.Mutex
	calls map[uint64]*outgoing // every call that holds a slot
	// urgent and waiting are calls that wait for a slot: those with priority, and the others.
	urgent, waiting list.List
	ended           error // why no call can begin any more
	// unanswered has the calls that were abandoned after they were written, until the peer replies. AbandonGrace
	// frees their slots, so at most MaxInFlight are added in that time.
	unanswered map[uint64]struct{}

	ctx    context.Context // of request handlers
	cancel context.CancelCauseFunc
	once   sync.Once
	cause  *CloseError // set before done closes
	done   chan struct{}
	tasks  sync.WaitGroup

	stats counters
}

// New starts a connection on rwc and takes ownership of it. The connection ends with Close or with the stream.
func New(rwc io.ReadWriteCloser, o Options) *Conn {
	o = o.withDefaults()
	c := &Conn{
		opts:   o,
		rwc:    rwc,
		frames: newFrameReader(rwc, o.MaxFrame),
		calls:  map[uint64]*outgoing{},
		done:   make(chan struct{}),

		unanswered: map[uint64]struct{}{},
	}
	c.out = newOutbound(o.MaxOutbound, &c.stats)
	c.out.now, _ = rwc.(immediate)
	if o.Pause != nil || o.Throttle != nil {
		c.frames.pause = c.betweenReads
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.serve = newServer(c)
	c.tasks.Go(c.readLoop)
	c.tasks.Go(c.writeLoop)
	return c
}

// Close ends the connection: calls fail, handlers' contexts end, the stream is closed. It does not wait for them; use
// Wait. The first cause becomes the connection's error.
func (c *Conn) Close() error {
	c.shut(&CloseError{Cause: ErrLocalClose})
	return nil
}

// CloseWrite ends this side's half of the stream: it writes the queued frames, then the peer reads the end. Later
// calls fail with ErrLocalClose. Reading continues until the peer ends its half. A stream without a CloseWrite method
// stays open.
func (c *Conn) CloseWrite() { c.out.finish() }

// Flush waits until all queued frames were written, or the connection or ctx has ended.
func (c *Conn) Flush(ctx context.Context) {
	for {
		wait, possible := c.out.fits(c.out.max)
		if wait == nil || !possible {
			return
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return
		case <-c.done:
			return
		}
	}
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Err returns nil until Done is closed, and then a *CloseError.
func (c *Conn) Err() error {
	select {
	case <-c.done:
		return c.cause
	default:
		return nil
	}
}

// Wait returns when the connection and its goroutines, including request handlers, have ended. Callbacks must not
// call it.
func (c *Conn) Wait() {
	<-c.done
	c.tasks.Wait()
	c.serve.wait()
}

// shut ends the connection. Only its first cause is used.
func (c *Conn) shut(cause *CloseError) {
	c.once.Do(func() {
		c.cause = cause
		c.out.close(cause)
		c.endCalls(cause)
		close(c.done)
		c.cancel(cause)
		if err := c.rwc.Close(); err != nil {
			c.opts.Logger.Debug("closing the stream failed", slog.Any("error", err))
		}
		c.stopTimers()
	})
}

// stopTimers stops the timers of abandoned calls.
func (c *Conn) stopTimers() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, out := range c.calls {
		if out.grace != nil {
			out.grace.Stop()
		}
	}
}

// writeLoop is the only writer. After a failed write the peer is usually gone, but data from it may still be unread:
// reading continues for a grace time.
func (c *Conn) writeLoop() {
	err := c.out.run(c.rwc)
	if err == nil {
		c.endWriting()
		return
	}
	cause := &CloseError{Cause: ErrWriteFailed, Err: err}
	c.out.close(cause)
	timer := time.NewTimer(c.opts.DrainGrace)
	defer timer.Stop()
	select {
	case <-c.done:
	case <-timer.C:
		c.shut(cause)
	}
}

// endWriting closes the writing half after CloseWrite.
func (c *Conn) endWriting() {
	half, ok := c.rwc.(interface{ CloseWrite() error })
	if !ok || c.Err() != nil {
		return
	}
	if err := half.CloseWrite(); err != nil {
		c.opts.Logger.Debug("closing the stream for writing failed", slog.Any("error", err))
	}
}

// readLoop is the only reader.
func (c *Conn) readLoop() {
	for {
		body, err := c.frames.next()
		if err != nil {
			c.pause()
			c.shut(c.readCause(err))
			return
		}
		c.stats.framesIn.Add(1)
		if isCanonicalEvent(body) {
			c.stats.events.Add(1)
			c.opts.Event(body)
			continue
		}
		c.dispatch(body)
	}
}

// betweenReads calls Pause and Throttle before more is read.
func (c *Conn) betweenReads() {
	c.pause()
	if c.opts.Throttle == nil {
		return
	}
	c.stats.throttling.Store(true)
	if c.opts.Throttle(c.done) {
		c.stats.throttled.Add(1)
	}
	c.stats.throttling.Store(false)
}

// pause reports that all received messages were delivered.
func (c *Conn) pause() {
	if c.opts.Pause != nil {
		c.opts.Pause()
	}
}

// readCause prefers an earlier write failure, because the end of the stream is its consequence.
func (c *Conn) readCause(err error) *CloseError {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	var cause *CloseError
	if errors.Is(c.out.err, ErrWriteFailed) {
		err = c.out.err
	}
	if !errors.As(err, &cause) {
		cause = &CloseError{Cause: ErrReadFailed, Err: err}
	}
	return cause
}

// dispatch handles every message except an event in the CLI's canonical form.
func (c *Conn) dispatch(body []byte) {
	m, ok := parseMessage(body)
	if !ok {
		c.countInvalid("not a json-rpc message", len(body))
		c.complain(body)
		return
	}
	if c.opts.Strict && m.id != nil && isNull(m.id) && m.method != nil {
		c.complain(body)
		return
	}
	if m.method == nil {
		c.reply(&m)
		return
	}
	method, ok := unquote(m.method)
	switch {
	case !ok:
		c.countInvalid("method is not a string", len(body))
	case m.id != nil && !isNull(m.id):
		c.serve.accept(&m, method)
	case method == eventMethod:
		c.stats.events.Add(1)
		c.opts.Event(body)
	default:
		c.stats.notifications.Add(1)
		c.opts.Notification(method, m.params)
	}
}

// countInvalid counts an invalid message; the stream itself is still valid.
func (c *Conn) countInvalid(what string, size int) {
	c.stats.malformed.Add(1)
	c.opts.Logger.Warn("ignoring message", slog.String("reason", what), slog.Int("bytes", size))
}

// complain replies to an invalid message if Strict is set.
func (c *Conn) complain(body []byte) {
	if !c.opts.Strict {
		return
	}
	e := &Error{Code: CodeInvalidRequest, Message: "Invalid Request"}
	if !json.Valid(body) {
		e = &Error{Code: CodeParseError, Message: "Parse error"}
	}
	if err := c.serve.send(errorFrame("null", e)); err != nil {
		c.opts.Logger.Debug("dropping complaint", slog.Any("error", err))
	}
}
