package rpcconn

import (
	"container/list"
	"errors"
	"fmt"
	"io"
	"sync"
)

// writeBatch is the size of one write of queued frames.
const writeBatch = 64 << 10

// outbound is the queue of frames for the peer. Only its writer goroutine writes, so that a peer that stops reading
// blocks no other goroutine.
type outbound struct {
	mu      sync.Mutex
	ready   sync.Cond // there is something to write, or the end
	frames  list.List // of *outgoing
	bytes   int       // queued or being written
	max     int
	last    bool          // the queued frames are the last
	err     error         // why nothing is written any more
	room    chan struct{} // closed when bytes decreases; nil without a waiting caller
	scratch []byte
}

func newOutbound(limit int) *outbound {
	o := &outbound{max: limit}
	o.ready.L = &o.mu
	return o
}

// push queues a frame, or refuses it.
func (o *outbound) push(out *outgoing) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return o.err
	}
	if o.last {
		return &CloseError{Cause: ErrLocalClose}
	}
	limit := o.max
	if !out.priority {
		limit -= o.max / 8
	}
	if o.bytes+len(out.frame) > limit {
		return fmt.Errorf("%w: %d bytes do not fit, %d of %d are taken", ErrOutboundFull, len(out.frame), o.bytes,
			limit)
	}
	o.bytes += len(out.frame)
	out.place = o.frames.PushBack(out)
	o.ready.Signal()
	return nil
}

// isFull reports that push found no room. A closed connection can have the same cause.
func isFull(err error) bool { return errors.Is(err, ErrOutboundFull) && !errors.Is(err, ErrClosed) }

// drop removes a frame, and reports whether it was still unwritten.
func (o *outbound) drop(out *outgoing) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if out.taken {
		return false
	}
	if out.place != nil {
		o.frames.Remove(out.place)
		out.place = nil
		o.release(len(out.frame))
	}
	return true
}

// wasTaken reports whether the writer took the frame.
func (o *outbound) wasTaken(out *outgoing) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return out.taken
}

// release subtracts from the queued bytes. The caller holds the lock.
func (o *outbound) release(n int) {
	o.bytes -= n
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

// fits returns nil if n more bytes fit, and otherwise a channel that closes when the caller should ask again. more is
// false if they can never fit.
func (o *outbound) fits(n int) (wait <-chan struct{}, more bool) { return o.fitsIn(o.max, n) }

// fitsLow is fits for frames without priority.
func (o *outbound) fitsLow(n int) (wait <-chan struct{}, more bool) {
	return o.fitsIn(o.max-o.max/8, n)
}

func (o *outbound) fitsIn(limit, n int) (wait <-chan struct{}, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil || o.last || n > limit {
		return nil, false
	}
	if o.bytes+n <= limit {
		return nil, true
	}
	if o.room == nil {
		o.room = make(chan struct{})
	}
	return o.room, true
}

// close refuses all later frames with err and drops the queued ones.
func (o *outbound) close(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return
	}
	o.err = err
	for e := o.frames.Front(); e != nil; e = e.Next() {
		e.Value.(*outgoing).place = nil
	}
	o.frames.Init()
	o.release(0)
	o.ready.Broadcast()
}

// finish refuses all later frames; the queued ones are still written.
func (o *outbound) finish() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.last = true
	o.release(0)
	o.ready.Broadcast()
}

// next waits for frames and takes as many as fit in one write.
func (o *outbound) next() (batch []byte, count int, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.frames.Len() == 0 && o.err == nil && !o.last {
		o.ready.Wait()
	}
	if o.err != nil || o.frames.Len() == 0 {
		return nil, 0, false
	}
	first := o.take()
	if o.frames.Len() == 0 || !o.joins(len(first)) {
		return first, 1, true
	}
	o.scratch = append(o.scratch[:0], first...)
	for count = 1; o.frames.Len() > 0 && o.joins(len(o.scratch)); count++ {
		o.scratch = append(o.scratch, o.take()...)
	}
	return o.scratch, count, true
}

// joins reports whether the first queued frame fits into a batch of n bytes.
func (o *outbound) joins(n int) bool {
	return n+len(o.frames.Front().Value.(*outgoing).frame) <= writeBatch
}

// take removes the first frame for writing.
func (o *outbound) take() []byte {
	out := o.frames.Remove(o.frames.Front()).(*outgoing)
	out.place, out.taken = nil, true
	frame := out.frame
	out.frame = nil // the call may exist for minutes after its frame
	return frame
}

// wrote subtracts the bytes of a finished write.
func (o *outbound) wrote(n int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.release(n)
}

func (o *outbound) queued() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bytes
}

// run writes until the queue is closed, or finished and empty, or a write fails.
func (o *outbound) run(w io.Writer, s *counters) error {
	for {
		batch, count, ok := o.next()
		if !ok {
			return nil
		}
		n, err := w.Write(batch)
		if err == nil && n < len(batch) {
			err = io.ErrShortWrite
		}
		if err != nil {
			return err
		}
		s.framesOut.Add(uint64(count))
		s.bytesOut.Add(uint64(n))
		o.wrote(len(batch))
	}
}
