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

// errDropped is the error of a frame whose call has ended.
var errDropped = errors.New("the call has ended")

// immediate is a stream that can write as much as fits without waiting.
type immediate interface{ WriteNow(b []byte) (int, error) }

// outbound is the queue of frames for the peer. Only its writer goroutine waits for the peer, so that a peer that stops
// reading blocks no other goroutine. A frame that finds an empty queue and an idle writer is written by the goroutine
// that pushes it, as far as it fits without waiting.
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
	now     immediate // nil if the stream cannot
	writing bool      // the writer has a batch
	stats   *counters
}

func newOutbound(limit int, stats *counters) *outbound {
	o := &outbound{max: limit, stats: stats}
	o.ready.L = &o.mu
	return o
}

// push queues a frame, or refuses it.
func (o *outbound) push(out *outgoing) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.err != nil:
		return o.err
	case o.last:
		return &CloseError{Cause: ErrLocalClose}
	case out.dropped:
		return errDropped
	}
	limit := o.max
	if !out.priority {
		limit -= o.max / 8
	}
	if o.bytes+len(out.frame) > limit {
		return fmt.Errorf("%w: %d bytes do not fit, %d of %d are taken", ErrOutboundFull, len(out.frame), o.bytes,
			limit)
	}
	if o.now != nil && !o.writing && o.frames.Len() == 0 && o.writeNow(out) {
		return nil
	}
	o.bytes += len(out.frame)
	out.place = o.frames.PushBack(out)
	o.ready.Signal()
	return nil
}

// writeNow writes a frame as far as it fits, and reports whether that was all. It leaves an error to the writer, which
// will meet it again. The caller holds the lock: the writer is idle and stays idle.
func (o *outbound) writeNow(out *outgoing) bool {
	n, err := o.now.WriteNow(out.frame)
	if n == 0 {
		return false
	}
	o.stats.bytesOut.Add(uint64(n))
	out.taken = true
	if n < len(out.frame) || err != nil {
		out.frame = out.frame[n:]
		return false
	}
	o.stats.framesOut.Add(1)
	out.frame = nil // the call may exist for minutes after its frame
	return true
}

// isFull reports that push found no room. A closed connection can have the same cause.
func isFull(err error) bool { return errors.Is(err, ErrOutboundFull) && !errors.Is(err, ErrClosed) }

// drop removes a frame, also one that is still to be pushed, and reports whether it was unwritten.
func (o *outbound) drop(out *outgoing) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if out.taken {
		return false
	}
	out.dropped = true
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
	o.writing = true
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
	o.writing = false
	o.release(n)
}

func (o *outbound) queued() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.bytes
}

// run writes until the queue is closed, or finished and empty, or a write fails.
func (o *outbound) run(w io.Writer) error {
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
		o.stats.framesOut.Add(uint64(count))
		o.stats.bytesOut.Add(uint64(n))
		o.wrote(len(batch))
	}
}
