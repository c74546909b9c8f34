package rpcconn

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
)

// Request is a call of the peer's, for a Handler to answer.
type Request struct {
	// ID is the request's id as JSON text.
	ID string
	// Method and Params are unchanged; Params is nil if absent.
	Method string
	Params json.RawMessage
	// Mark passes data from Arrive to the handler, such as the request's position among the events.
	Mark any
	// Replied, if the handler sets it, is called when the reply is queued or dropped.
	Replied func()
}

// task is a request that is being served or is waiting.
type task struct {
	req  *Request
	lane string
}

// server serves the peer's requests on at most MaxRequestWorkers goroutines, which exist only while there is work.
type server struct {
	conn *Conn

	mu      sync.Mutex
	ready   []*task            // may start now, oldest first
	lanes   map[string][]*task // by lane with a task ready or running: what comes after it
	all     int                // ready, held back in a lane, or running
	workers int
	tasks   sync.WaitGroup
}

func newServer(c *Conn) *server {
	return &server{conn: c, lanes: map[string][]*task{}}
}

// accept queues a request. It runs on the reader goroutine and never blocks.
func (s *server) accept(m *message, method string) {
	req := &Request{ID: string(m.id), Method: method, Params: bytes.Clone(m.params)}
	t := &task{req: req, lane: s.conn.opts.Arrive(req)}
	if !s.queue(t) {
		s.conn.stats.refusedRequests.Add(1)
		s.conn.opts.Logger.Warn("refusing request", slog.String("method", method), slog.String("reason", "queue full"))
		s.refuse(t)
	}
}

// refuse replies to a request that found no room. If the reply finds no room either, the peer sends requests without
// reading replies.
func (s *server) refuse(t *task) {
	o := s.conn.opts
	err := s.send(errorFrame(t.req.ID, &Error{
		Code:    CodeOverloaded,
		Message: fmt.Sprintf("too many requests: %d served, %d waiting", o.MaxRequestWorkers, o.MaxRequestQueue),
		Data:    json.RawMessage(`{"reason":"REQUEST_QUEUE_FULL"}`),
	}))
	if isFull(err) {
		s.conn.shut(&CloseError{Cause: ErrPeerStalled, Err: err})
	}
}

// queue makes t ready, or appends it to its lane.
func (s *server) queue(t *task) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= s.conn.opts.MaxRequestWorkers+s.conn.opts.MaxRequestQueue {
		return false
	}
	s.all++
	if t.lane != "" {
		if behind, busy := s.lanes[t.lane]; busy {
			s.lanes[t.lane] = append(behind, t)
			return true
		}
		s.lanes[t.lane] = nil
	}
	s.ready = append(s.ready, t)
	if s.workers < s.conn.opts.MaxRequestWorkers {
		s.workers++
		s.tasks.Go(s.work)
	}
	return true
}

// work serves ready tasks until there are none.
func (s *server) work() {
	for t := s.next(nil); t != nil; t = s.next(t) {
		s.run(t)
	}
}

// next removes the finished task, makes the next one of its lane ready, and returns the oldest ready task. If it
// returns nil, the worker ends.
func (s *server) next(finished *task) *task {
	s.mu.Lock()
	defer s.mu.Unlock()
	if finished != nil {
		s.all--
		s.advance(finished.lane)
	}
	if len(s.ready) == 0 {
		s.workers--
		return nil
	}
	t := s.ready[0]
	s.ready[0] = nil
	s.ready = s.ready[1:]
	return t
}

func (s *server) advance(lane string) {
	if lane == "" {
		return
	}
	behind := s.lanes[lane]
	if len(behind) == 0 {
		delete(s.lanes, lane)
		return
	}
	s.ready = append(s.ready, behind[0])
	s.lanes[lane] = behind[1:]
}

// run serves one request and sends its reply.
func (s *server) run(t *task) {
	ctx, cancel := context.WithCancel(s.conn.ctx)
	defer cancel()
	defer func() {
		if t.req.Replied != nil {
			t.req.Replied()
		}
	}()
	result, err := s.conn.opts.Request(ctx, t.req)
	if err == nil {
		if bad := s.conn.checkBody(result); bad != nil {
			err = fmt.Errorf("result: %w", bad)
		}
	}
	var frame []byte
	if err != nil {
		frame = errorFrame(t.req.ID, replyError(err))
	} else {
		frame = resultFrame(t.req.ID, result)
	}
	if err := s.deliver(t, frame); err != nil {
		s.conn.stats.droppedAnswers.Add(1)
		s.conn.opts.Logger.Debug("dropping answer", slog.String("method", t.req.Method), slog.Any("error", err))
	}
}

// deliver sends a reply, and waits for room: without a reply the peer would wait forever, and only this worker waits.
func (s *server) deliver(t *task, frame []byte) error {
	for {
		err := s.send(frame)
		if !isFull(err) {
			return err
		}
		wait, possible := s.conn.out.fits(len(frame))
		if !possible {
			frame = errorFrame(t.req.ID, &Error{
				Code:    CodeInternalError,
				Message: fmt.Sprintf("answer of %d bytes is over the limit", len(frame)),
			})
			continue
		}
		if wait == nil {
			continue
		}
		select {
		case <-wait:
		case <-s.conn.done:
			return s.conn.cause
		}
	}
}

// send queues a finished reply.
func (s *server) send(frame []byte) error {
	return s.conn.out.push(&outgoing{frame: frame, priority: true})
}

// wait returns when no handler runs; waiting tasks run with an ended context and return quickly.
func (s *server) wait() { s.tasks.Wait() }
