package stream

import (
	"container/heap"
	"sync"
	"time"
)

// heartbeats has the streams that wait for their next heartbeat, with one timer for all: a timer for each would take
// 0.15 KB. Its lock guards the queue and the beatAt and place members of its elements, and is not held while streams
// send. Call newHeartbeats to make one. It is safe for concurrent use.
type heartbeats struct {
	start time.Time // beatAt counts from here
	mu    sync.Mutex
	queue beatQueue
	timer *time.Timer // nil before the first stream
}

func newHeartbeats() *heartbeats { return &heartbeats{start: time.Now()} }

// add lets the stream's heartbeat be due after its interval.
func (h *heartbeats) add(st *Stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	st.beatAt = time.Since(h.start) + st.options.heartbeat
	heap.Push(&h.queue, st)
	switch {
	case h.timer == nil:
		h.timer = time.AfterFunc(st.options.heartbeat, h.beat)
	case st.place == 0:
		h.timer.Reset(st.options.heartbeat)
	}
}

// remove takes the stream out, if it is there.
func (h *heartbeats) remove(st *Stream) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := int(st.place); i < len(h.queue) && h.queue[i] == st {
		heap.Remove(&h.queue, i)
	}
	if len(h.queue) == 0 && h.timer != nil {
		h.timer.Stop()
	}
}

// beat wakes the streams whose heartbeat is due. Each adds itself again.
func (h *heartbeats) beat() {
	for st := h.next(); st != nil; st = h.next() {
		st.ready.beat()
	}
}

// next takes out a stream whose heartbeat is due. If there is none, it sets the timer and returns nil.
func (h *heartbeats) next() *Stream {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.queue) == 0 {
		return nil
	}
	if wait := h.queue[0].beatAt - time.Since(h.start); wait > 0 {
		h.timer.Reset(wait)
		return nil
	}
	return heap.Pop(&h.queue).(*Stream) //nolint:forcetypeassert // it has nothing else
}

// beatQueue is a heap: the stream whose heartbeat is due first is its first element.
type beatQueue []*Stream

func (q beatQueue) Len() int           { return len(q) }
func (q beatQueue) Less(i, j int) bool { return q[i].beatAt < q[j].beatAt }

func (q beatQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = int32(i), int32(j) //nolint:gosec // there are not that many streams
}

func (q *beatQueue) Push(x any) {
	st := x.(*Stream)         //nolint:forcetypeassert // only add calls this
	st.place = int32(len(*q)) //nolint:gosec // as above
	*q = append(*q, st)
}

func (q *beatQueue) Pop() any {
	last := len(*q) - 1
	st := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return st
}
